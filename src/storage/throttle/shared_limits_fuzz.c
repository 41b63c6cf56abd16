/* Fuzz target of shared_limits.c: any bytes after the head of the file, and a process that uses it.
 * Every count stays within its bound, and leases that were taken can be released. */
#include "io/clock.h"
#include "storage/throttle/shared_limits.h"
#include "storage/throttle/shared_limits_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/stk_node_fuzz_XXXXXX", path[128];

static void leave(void)
{
    unlink(path);
    rmdir(folder);
}

static void put(const uint8_t *data, size_t bytes)
{
    static struct stk_shared_limits_file file;
    size_t used = 0, place = STK_SHARED_LIMITS_HEAD_BYTES;
    int fd;

    memset(&file, 0, sizeof file);
    file.magic = STK_SHARED_LIMITS_MAGIC;
    file.layout = STK_SHARED_LIMITS_LAYOUT;
    file.bytes = sizeof file;
    while (used < bytes) { /* over and over, from where the first two bytes say */
        place += used == 0 && bytes > 2 ? (size_t)(data[0] << 8 | data[1]) % sizeof file : 0;
        for (used = 0; used < bytes && place < sizeof file; used++) {
            ((uint8_t *)&file)[place++] = data[used];
        }
        if (place >= sizeof file) {
            break;
        }
        used = data[bytes - 1] & 1 ? bytes : 0;
    }
    unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    STK_ASSERT(fd >= 0 && write(fd, &file, sizeof file) == (ssize_t)sizeof file);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_shared_limits_options options = {.folder = folder, .connections_max = 40};
    struct stk_shared_limits *node;
    struct stk_shared_limits_stats stats;
    uint64_t now_ns = stk_clock_ns();

    if (!path[0]) {
        STK_ASSERT(mkdtemp(folder));
        snprintf(path, sizeof path, "%s/stoker-%u-%u", folder, STK_SHARED_LIMITS_LAYOUT,
                 (unsigned)geteuid());
        atexit(leave);
    }
    (void)stk_shared_limits_file_is_valid(data, bytes, bytes);
    put(data, bytes);
    STK_ASSERT(stk_shared_limits_open(&node, &options, NULL) == 0);
    for (uint32_t i = 0; i < 60; i++) {
        now_ns += 7000000;
        stk_shared_limits_request(node, i, now_ns);
        (void)stk_shared_limits_acquire(node, now_ns);
        STK_ASSERT(stk_shared_limits_held(node) <= 40);
        stk_shared_limits_release(node, stk_shared_limits_excess(node, now_ns));
        (void)stk_shared_limits_admit(node, bytes ? data[i % bytes] : i, now_ns, NULL);
        (void)stk_shared_limits_record(node, i % 4, now_ns, now_ns, i % 3 == 0);
        stk_shared_limits_get_stats(node, now_ns, &stats);
        STK_ASSERT(stats.connections_max <= 40 && stats.connections <= STK_SHARED_LIMITS_LEASES &&
                   stats.members <= STK_SHARED_LIMITS_MEMBERS);
    }
    stk_shared_limits_close(node);
    return 0;
}
