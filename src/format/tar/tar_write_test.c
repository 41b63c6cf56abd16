/* Goal: headers that we write mean the same to our reader, to Python's tarfile and to GNU tar.
 * Method: names around every limit of ustar, in and out of UTF-8, and sizes on both sides of 8 GiB
 * (a file with a hole) in one tar; each reader lists it. Then headers of fixed bytes. */
#include "test/t.h"
#include "format/tar/tar.h"
#include "format/tar/tar_write.h"

#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { MEMBERS_MAX = 256 };

static struct member {
    uint8_t name[STK_TAR_NAME_MAX];
    size_t name_bytes;
    uint64_t bytes;
} members[MEMBERS_MAX];
static size_t member_count;

/* Lists with tarfile, and checks that GNU tar lists the same names. */
static const char script[] =
    "import subprocess, sys, tarfile\n"
    "path = sys.argv[1]\n"
    "names = []\n"
    "with tarfile.open(path, encoding='utf-8') as t:\n"
    "    for i in t:\n"
    "        names.append(i.name.encode('utf-8', 'surrogateescape'))\n"
    "        fixed = i.isreg() and (i.mode, i.uid, i.gid, i.mtime) == (0o644, 0, 0, 0)\n"
    "        print('M', i.size, names[-1].hex(), int(fixed))\n"
    "out = subprocess.run(['tar', '--list', '--quoting-style=literal', '--file', path],\n"
    "                     env={'LC_ALL': 'C', 'PATH': '/usr/bin:/bin'}, capture_output=True)\n"
    "print('G', int(out.returncode == 0), int(out.stdout.split(b'\\n')[:-1] == names))\n";

static void add(const void *name, size_t name_bytes, uint64_t bytes)
{
    struct member *member = &members[member_count++];

    memcpy(member->name, name, name_bytes);
    member->name_bytes = name_bytes;
    member->bytes = bytes;
}

static struct stk_view name_of(const struct member *member)
{
    return (struct stk_view){member->name, member->name_bytes};
}

static void make_members(void)
{
    static const size_t lengths[] = {1, 99, 100, 101, 155, 156, 157, 254, 255, 256, 257, 300, 4096};
    static const size_t folders[] = {0, 1, 50, 99, 154, 155, 156, 200};
    static const char latin[] = "stra\xdf"
                                "e.jpg";
    static const char utf8[] = "z/\xc3\xa9\xe7\x8c\xab\xf0\x9f\x98\xba.jpg";
    uint8_t name[STK_TAR_NAME_MAX];

    for (size_t i = 0; i < STK_COUNT(lengths); i++) {
        for (size_t j = 0; j < STK_COUNT(folders); j++) {
            memset(name, 'a' + (int)(i % 26), sizeof name);
            name[lengths[i] / 2] = (uint8_t)('A' + (int)j);
            if (folders[j] > 0 && folders[j] + 1 < lengths[i]) {
                name[folders[j]] = '/';
            }
            add(name, lengths[i], i * 300);
        }
    }
    add(latin, sizeof latin - 1, 5);
    add(utf8, sizeof utf8 - 1, 511);
    memset(name, 0xe9, 300); /* not UTF-8, and too long for ustar */
    add(name, 300, 512);
    for (size_t i = 0; i < 300; i += 3) {
        memcpy(name + i, "\xe7\x8c\xab", 3);
    }
    add(name, 300, 513);
    add("below", 5, (UINT64_C(1) << 33) - 1);
    add("huge", 4, UINT64_C(1) << 33);
    memset(name, 'h', 400);
    add(name, 400, (UINT64_C(1) << 33) + 7);
}

static void write_tar(FILE *file)
{
    static uint8_t header[STK_TAR_HEADER_MAX];
    off_t at = 0;

    for (size_t i = 0; i < member_count; i++) {
        struct stk_view name = name_of(&members[i]);
        size_t bytes = stk_tar_header_write(name, members[i].bytes, header);

        T_EQ("said before", stk_tar_header_bytes(name, members[i].bytes), bytes);
        T_EQ("blocks", bytes % STK_TAR_BLOCK, 0);
        fseeko(file, at, SEEK_SET);
        fwrite(header, 1, bytes, file);
        at += (off_t)stk_tar_member_bytes(name, members[i].bytes);
    }
    memset(header, 0, STK_TAR_END_BYTES);
    fseeko(file, at, SEEK_SET);
    fwrite(header, 1, STK_TAR_END_BYTES, file);
    fflush(file);
}

static void read_back(FILE *file)
{
    static uint8_t buffer[64 << 10];
    struct stk_view input = {0};
    struct stk_tar_step step = {0};
    struct stoker_error error = {0};
    struct stk_tar *tar = NULL;
    size_t count = 0;

    T_EQ("open", stk_tar_open(&tar, UINT64_MAX, NULL, &error), 0);
    while (stk_tar_step(tar, input, &step, &error) == 0 && step.event != STK_TAR_END) {
        if (step.event == STK_TAR_NEED) {
            fseeko(file, (off_t)step.offset, SEEK_SET);
            input = (struct stk_view){buffer, fread(buffer, 1, sizeof buffer, file)};
        } else if (T_TRUE("no more than written", count < member_count)) {
            const struct member *member = &members[count++];

            T_EQ("size", step.bytes, member->bytes);
            T_EQ("type", step.type, '0');
            T_TRUE("name", step.name.bytes == member->name_bytes &&
                               memcmp(step.name.data, member->name, member->name_bytes) == 0);
        }
    }
    T_STR("our reader", error.what, "");
    T_EQ("all", count, member_count);
    stk_tar_close(tar);
}

static void compare(FILE *listing)
{
    static char line[3 * STK_TAR_NAME_MAX], hex[3 * STK_TAR_NAME_MAX], want[3 * STK_TAR_NAME_MAX];
    unsigned long long bytes;
    size_t count = 0;
    int fixed, agrees = 0, works = 0;

    while (fgets(line, sizeof line, listing)) {
        if (sscanf(line, "G %d %d", &works, &agrees) == 2) {
            continue;
        }
        T_EQ(line, sscanf(line, "M %llu %24575s %d", &bytes, hex, &fixed), 3);
        if (!T_TRUE(line, count < member_count)) {
            return;
        }
        for (size_t i = 0; i < members[count].name_bytes; i++) {
            snprintf(want + 2 * i, 3, "%02x", members[count].name[i]);
        }
        T_STR("tarfile's name", hex, want);
        T_EQ(line, bytes, members[count].bytes);
        T_EQ("nothing of who and when", fixed, 1);
        count++;
    }
    T_EQ("tarfile lists all", count, member_count);
    T_EQ("GNU tar lists it", works, 1);
    T_EQ("GNU tar's names are the same", agrees, 1);
}

/* The bytes themselves, so that no later version changes hashes of data sets unseen. */
static void test_fixed_bytes(void)
{
    uint8_t block[STK_TAR_HEADER_MAX];
    const struct stk_view name = {(const uint8_t *)"a/b.jpg", 7};

    T_EQ("one block", stk_tar_header_write(name, 1234, block), 512);
    T_STR("name", (char *)block, "a/b.jpg");
    T_STR("mode", (char *)block + 100, "0000644");
    T_STR("size", (char *)block + 124, "00000002322");
    T_STR("time", (char *)block + 136, "00000000000");
    T_STR("checksum", (char *)block + 148, "007107");
    T_EQ("type", block[156], '0');
    T_TRUE("magic", memcmp(block + 257, "ustar\00000", 8) == 0);
    T_EQ("padding", stk_tar_padding(1234), 302);
    T_EQ("no padding", stk_tar_padding(1024), 0);
}

int main(void)
{
    char path[] = "/tmp/tar_write_XXXXXX", command[2048], script_path[64];
    int descriptor = mkstemp(path);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "w+b") : NULL, *listing;

    test_fixed_bytes();
    make_members();
    if (!T_TRUE("a file to write", file != NULL)) {
        return t_finish();
    }
    write_tar(file);
    read_back(file);
    if (access("/usr/bin/python3", X_OK) == 0) {
        FILE *text;

        snprintf(script_path, sizeof script_path, "%s.py", path);
        text = fopen(script_path, "w");
        if (T_TRUE("script", text != NULL)) {
            fputs(script, text);
            fclose(text);
        }
        snprintf(command, sizeof command, "/usr/bin/python3 %s %s", script_path, path);
        listing = popen(command, "r");
        if (T_TRUE("python runs", listing != NULL)) {
            compare(listing);
            pclose(listing);
        }
        remove(script_path);
    } else {
        printf("no /usr/bin/python3: only the reader of the library ran\n");
    }
    fclose(file);
    remove(path);
    return t_finish();
}
