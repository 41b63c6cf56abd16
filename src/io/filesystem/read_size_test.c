/* Goal: the read size and the gap that reads may span follow from the mount's row and st_blksize;
 * hostile values stay within the bounds. Covers read_size.c.
 * Method: a table of rows, found by their devices in a fake /proc; expected spans, joined by hand.
 */
#include "io/filesystem/read_size.h"

#include "io/filesystem/filesystem.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define KIB 1024u
#define MIB (1024u * KIB)

static const struct row {
    const char *name, *type, *super;
    uint32_t block_bytes;
    uint32_t request, gap, most;
} rows[] = {
    {"ext4", "ext4", "rw,discard", 4096, 0, 64 * KIB, 4 * MIB},
    {"a disk that likes megabytes", "xfs", "rw", 2 * MIB, 0, 64 * KIB, 4 * MIB},
    {"an option that is not its own", "ext4", "rw,rsize=1048576,max_read=1", 0, 0, 64 * KIB,
     4 * MIB},
    {"tmpfs", "tmpfs", "rw", 4096, 0, 64 * KIB, 4 * MIB},
    {"overlay", "overlay", "rw,lowerdir=/l", 4096, 0, 64 * KIB, 4 * MIB},
    {"not known", "frobfs", "rw,rsize=1048576", 0, 0, 64 * KIB, 4 * MIB},
    {"nfs4", "nfs4", "rw,vers=4.2,rsize=1048576,wsize=65536", 0, MIB, 256 * KIB, 4 * MIB},
    {"nfs, less", "nfs", "rw,rsize=262144", 0, 256 * KIB, 64 * KIB, 4 * MIB},
    {"nfs, half of that", "nfs", "rw,rsize=524288", 4096, 512 * KIB, 128 * KIB, 4 * MIB},
    {"nfs, st_blksize does not count", "nfs", "rw,rsize=524288", 4 * MIB, 512 * KIB, 128 * KIB,
     4 * MIB},
    {"cifs", "cifs", "rw,vers=3.1.1,rsize=4194304,wsize=65536", 0, 4 * MIB, MIB, 4 * MIB},
    {"smb3, nothing reported", "smb3", "rw", 4096, MIB, 256 * KIB, 4 * MIB},
    {"9p", "9p", "rw,trans=virtio,msize=524288", 0, 520192, 130048, 520192},
    {"9p, nothing reported", "9p", "rw,trans=virtio", 0, MIB, 256 * KIB, MIB},
    {"lustre", "lustre", "rw,flock", 4 * MIB, 4 * MIB, MIB, 4 * MIB},
    {"lustre, nothing reported", "lustre", "rw,flock", 4096, MIB, 256 * KIB, 4 * MIB},
    {"gpfs", "gpfs", "rw", 8 * MIB, 8 * MIB, MIB, 8 * MIB},
    {"gpfs, 16 MiB", "gpfs", "rw", 16 * MIB, 16 * MIB, MIB, 16 * MIB},
    {"beegfs", "beegfs", "rw", 512 * KIB, 512 * KIB, 128 * KIB, 4 * MIB},
    {"ceph", "ceph", "rw,name=admin", 4 * MIB, 4 * MIB, MIB, 4 * MIB},
    {"virtiofs", "virtiofs", "rw", 4096, MIB, 256 * KIB, MIB},
    {"fuse", "fuse.gcsfuse", "rw,max_read=131072", 0, 128 * KIB, 64 * KIB, 128 * KIB},
    {"fuse, rsize is none of its own", "fuse.mine", "rw,rsize=65536", 0, MIB, 256 * KIB, MIB},
    {"fuse, nothing reported", "fuse", "rw,user_id=0", 4096, MIB, 256 * KIB, MIB},
    {"fuse, small blocks", "fuse", "rw", 128 * KIB, MIB, 256 * KIB, MIB},
    {"fuse, large blocks", "fuse", "rw", 4 * MIB, 4 * MIB, MIB, 4 * MIB},
    {"fuse of a network", "fuse.glusterfs", "rw,max_read=131072", 0, 128 * KIB, 64 * KIB,
     128 * KIB},
    {"fuseblk", "fuseblk", "rw,blksize=4096,max_read=131072", 4096, 128 * KIB, 64 * KIB, 128 * KIB},
    /* hostile */
    {"rsize=0", "nfs4", "rw,rsize=0", 4096, MIB, 256 * KIB, 4 * MIB},
    {"rsize=1", "nfs4", "rw,rsize=1", 0, 64 * KIB, 64 * KIB, 4 * MIB},
    {"rsize of no whole page", "nfs4", "rw,rsize=1000000", 0, 999424, 249856, 4 * MIB},
    {"rsize, huge", "nfs4", "rw,rsize=99999999999999", 0, 16 * MIB, MIB, 16 * MIB},
    {"rsize, of 40 digits", "nfs4", "rw,rsize=9999999999999999999999999999999999999999", 0, MIB,
     256 * KIB, 4 * MIB},
    {"rsize, negative", "nfs4", "rw,rsize=-1", 0, MIB, 256 * KIB, 4 * MIB},
    {"rsize, no value", "nfs4", "rw,rsize=", 0, MIB, 256 * KIB, 4 * MIB},
    {"rsize, a word", "nfs4", "rw,rsize", 0, MIB, 256 * KIB, 4 * MIB},
    {"rsize twice", "nfs4", "rw,rsize=65536,rsize=524288", 0, 512 * KIB, 128 * KIB, 4 * MIB},
    {"rsize of 4 GiB and one", "nfs4", "rw,rsize=4294967297", 0, 16 * MIB, MIB, 16 * MIB},
    {"max_read=0", "fuse", "rw,max_read=0", 0, MIB, 256 * KIB, MIB},
    {"max_read=1", "fuse", "rw,max_read=1", 0, 64 * KIB, 64 * KIB, 64 * KIB},
    {"max_read, huge", "fuse", "rw,max_read=99999999999999", 0, 16 * MIB, MIB, 16 * MIB},
    {"msize, less than a header", "9p", "rw,msize=24", 0, MIB, 256 * KIB, MIB},
    {"msize, hardly more", "9p", "rw,msize=25", 0, 64 * KIB, 64 * KIB, 64 * KIB},
    {"st_blksize, the most there is", "gpfs", "rw", UINT32_MAX, 16 * MIB, MIB, 16 * MIB},
    {"st_blksize of no whole page", "gpfs", "rw", 65537, 64 * KIB, 64 * KIB, 4 * MIB},
};

static char tree[] = "/tmp/stoker-reads-XXXXXX";

static void check(const struct row *row, const struct stk_read_sizes *reads)
{
    T_EQ(row->name, reads->request_bytes, row->request);
    T_EQ(row->name, reads->free_gap_bytes, row->request ? 16 * KIB : 64 * KIB);
    T_EQ(row->name, reads->gap_bytes, row->gap);
    T_EQ(row->name, reads->bytes_max, row->most);
    T_EQ(row->name, reads->align, row->request ? STK_READ_SIZE_PAGE_BYTES : 1);
}

/* The device of the first row is 0:100. */
static void put_table(void)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%s/proc/self/mountinfo", tree);
    file = fopen(path, "w");
    if (!file) {
        t_skip("cannot write to /tmp");
    }
    fputs("no row\n", file);
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        fprintf(file, "%zu 1 0:%zu / /m%zu rw,noatime shared:1 - %s src %s\n", i + 10, i + 100, i,
                rows[i].type, rows[i].super);
    }
    fclose(file);
}

static void test_rows(void)
{
    struct stk_read_size_mounts mounts = {.count = 0};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_read_sizes reads =
            stk_read_size_find(&mounts, tree, makedev(0, 100 + i), rows[i].block_bytes);

        check(&rows[i], &reads);
    }
}

/* Each mount is looked up once; an unknown one, too; the oldest is replaced. */
static void test_mounts(void)
{
    struct stk_read_size_mounts mounts = {.count = 0};
    const struct row *nfs = &rows[6], *gpfs = &rows[16];
    const struct row disk = {"not in the table", NULL, NULL, 0, 0, 64 * KIB, 4 * MIB};
    struct stk_read_sizes reads = stk_read_size_find(&mounts, tree, makedev(0, 106), 0);

    T_STR("rows", nfs->name, "nfs4");
    T_STR("rows", gpfs->name, "gpfs");
    check(nfs, &reads);
    reads = stk_read_size_find(&mounts, tree, makedev(7, 106), 0);
    check(&disk, &reads);
    T_EQ("met", mounts.count, 2);
    reads = stk_read_size_find(&mounts, "/nonexistent", makedev(0, 106), 0);
    check(nfs, &reads); /* remembered */
    reads = stk_read_size_find(&mounts, tree, makedev(7, 106), 0);
    check(&disk, &reads);
    T_EQ("met", mounts.count, 2);
    reads = stk_read_size_find(&mounts, tree, makedev(0, 116), 8 * MIB);
    check(gpfs, &reads);
    reads =
        stk_read_size_find(&mounts, tree, makedev(0, 116), 4 * MIB); /* each file its own blocks */
    T_EQ("another file", reads.bytes_max, 4 * MIB);
    T_EQ("met", mounts.count, 3);
    for (uint32_t i = 0; i < STK_READ_SIZE_MOUNTS; i++) {
        stk_read_size_find(&mounts, tree, makedev(9, i), 0);
    }
    T_EQ("met", mounts.count, 3 + STK_READ_SIZE_MOUNTS);
    reads = stk_read_size_find(&mounts, "/nonexistent", makedev(9, 63), 0);
    T_EQ("met", mounts.count, 3 + STK_READ_SIZE_MOUNTS);
    reads = stk_read_size_find(&mounts, "/nonexistent", makedev(0, 106), 0);
    check(&disk, &reads); /* it made room, and there is no table any more */
}

static const struct stk_read_sizes fuse = {MIB, 16 * KIB, 256 * KIB, MIB, STK_READ_SIZE_PAGE_BYTES};
static const struct stk_read_sizes given = {0, 100, 100, 1000, 1};
static const struct step {
    const char *name;
    const struct stk_read_sizes *reads;
    struct stk_coalesced_read from;
    uint64_t offset, bytes;
    bool joins;
    uint64_t end, between;
} steps[] = {
    {"beside", &given, {50, 100, 0}, 100, 10, true, 110, 0},
    {"over a gap", &given, {50, 100, 7}, 200, 10, true, 210, 107},
    {"over too large a gap", &given, {50, 100, 7}, 201, 10, false, 100, 7},
    {"before", &given, {50, 100, 0}, 49, 10, false, 100, 0},
    {"the same again", &given, {50, 100, 3}, 50, 50, true, 100, 3},
    {"inside", &given, {50, 100, 3}, 60, 10, true, 100, 3},
    {"across the end", &given, {50, 100, 3}, 90, 20, true, 110, 3},
    {"as much as may be", &given, {50, 100, 0}, 100, 950, true, 1050, 0},
    {"one more", &given, {50, 100, 0}, 100, 951, false, 100, 0},
    {"given: however little is wanted", &given, {0, 1, 500}, 101, 1, true, 102, 600},
    {"local: however few bytes are wanted",
     &fuse,
     {0, 1, 0},
     1 + 16 * KIB,
     1,
     true,
     16 * KIB + 2,
     16 * KIB},
    {"remote: too few bytes are wanted", &fuse, {0, 1, 0}, 2 + 16 * KIB, 1, false, 1, 0},
    {"remote: as many bytes as are wanted",
     &fuse,
     {0, 50 * KIB, 0},
     150 * KIB,
     50 * KIB,
     true,
     200 * KIB,
     100 * KIB},
    {"remote: a byte less", &fuse, {0, 50 * KIB, 0}, 150 * KIB, 50 * KIB - 1, false, 50 * KIB, 0},
    {"remote: of the full read",
     &fuse,
     {0, 150 * KIB, 70 * KIB},
     250 * KIB,
     90 * KIB,
     true,
     340 * KIB,
     170 * KIB},
    {"remote: of the full read, less",
     &fuse,
     {0, 150 * KIB, 71 * KIB},
     250 * KIB,
     90 * KIB,
     false,
     150 * KIB,
     71 * KIB},
    {"the largest gap", &fuse, {0, 300 * KIB, 0}, 556 * KIB, 1, true, 556 * KIB + 1, 256 * KIB},
    {"a byte more", &fuse, {0, 300 * KIB, 0}, 556 * KIB + 1, 1, false, 300 * KIB, 0},
    {"complete pages", &fuse, {4096, 8192, 0}, 8192, MIB - 4096, true, MIB + 4096, 0},
    {"a page begun too early", &fuse, {4095, 8192, 0}, 8192, MIB - 4096, false, 8192, 0},
    {"a page ended too late", &fuse, {4096, 8192, 0}, 8192, MIB - 4095, false, 8192, 0},
};

static void test_join(void)
{
    T_EACH(step, row, steps)
    {
        struct stk_coalesced_read growth = row->from;

        T_EQ(row->name, stk_read_size_coalesce(row->reads, &growth, row->offset, row->bytes),
             row->joins);
        T_EQ(row->name, growth.begin, row->from.begin);
        T_EQ(row->name, growth.end, row->end);
        T_EQ(row->name, growth.unwanted_bytes, row->between);
    }
}

int main(void)
{
    char command[128], path[128];

    if (!mkdtemp(tree)) {
        t_skip("no folder in /tmp");
    }
    snprintf(path, sizeof path, "%s/proc", tree);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/proc/self", tree);
    mkdir(path, 0777);
    put_table();
    test_rows();
    test_mounts();
    test_join();
    snprintf(command, sizeof command, "rm -r %s", tree);
    return t_finish() | (system(command) != 0);
}
