/* Goal: kinds, options and advice of mounts that no test machine has; layouts of Lustre and CephFS;
 * /sys of disks and partitions. mountinfo.c, filesystem_type.c, stripe_layout.c, block_device.c,
 * mount_advice.c, mount_probe.c.
 * Method: trees of fake /proc and /sys, one table of mounts with a row for each file system; bytes
 * of layouts made by the offsets in lustre_user.h. */
#include "io/filesystem/filesystem.h"

#include "base/mem.h"
#include "base/options.h"
#include "io/filesystem/mountinfo.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const table[] = {
    "901 1 254:0 / / rw - ext4 /dev/vda1 rw,discard",
    "902 901 0:51 / /nfs rw,noatime shared:5 master:2 - nfs4 filer.lan:/export/a\\040b "
    "rw,vers=4.2,rsize=262144,wsize=524288,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys",
    "903 901 0:52 / /nfs/soft rw - nfs 10.0.0.1:/x rw,vers=3,rsize=1048576,wsize=1048576,soft,noac,"
    "proto=tcp,nconnect=8,timeo=50,retrans=3",
    "904 901 0:53 / /efs rw - nfs4 fs-1.efs.eu-west-1.amazonaws.com:/ "
    "rw,vers=4.1,rsize=1048576,wsize=1048576,hard,proto=tcp,timeo=600,retrans=2",
    "905 901 0:54 / /lustre rw - lustre 10.0.0.5@tcp:/fsx rw,lazystatfs",
    "906 901 0:55 / /gpfs rw - gpfs gpfs0 rw",
    "907 901 0:56 / /ceph ro - ceph 10.0.0.6:6789,10.0.0.7:6789:/ rw,name=admin",
    "908 901 0:57 / /weka rw - wekafs backend/fs rw",
    "909 901 0:58 / /beegfs rw - beegfs beegfs_nodev rw",
    "910 901 0:59 / /nine rw - 9p share rw,trans=virtio,msize=131072",
    "911 901 0:60 / /virtio rw - virtiofs tag rw",
    "912 901 0:61 / /smb rw - cifs //nas/share rw,vers=3.1.1,rsize=65536,soft",
    "913 901 0:62 / /bucket rw - fuse.gcsfuse bucket rw,max_read=131072",
    "914 901 0:63 / /odd rw - fuse.mine x rw",
    "915 901 259:1 / /fast rw - xfs /dev/nvme0n1p1 rw",
    "916 901 0:64 / /btr rw - btrfs /dev/sda rw",
    "917 901 0:65 / /strange rw - frobfs x rw",
    "not a row at all",
    "918 901 0:66 / /twice rw - tmpfs none rw",
    "919 901 0:67 / /twice rw - nfs4 [fd00::1]:/y rw,rsize=1048576,nconnect=2,proto=rdma,actimeo=5",
    "920 901 0:68 / /udp rw - nfs 10.0.0.1:/u rw,vers=3,rsize=1048576,hard,proto=udp,nconnect=2",
    "921 901 0:69 / /rdma rw - nfs4 s:/r rw,rsize=1048576,hard,proto=rdma",
    "922 901 0:70 / /folders rw - nfs4 s:/f rw,rsize=1048576,nconnect=2,acdirmax=0",
    "923 901 0:71 / /flock rw - lustre 10.0.0.5@tcp:/fsx rw,flock",
    "924 901 0:72 / /blob rw - fuse.blobfuse2 blobfuse2 rw",
    "925 901 0:73 / /layer rw - overlay overlay rw,lowerdir=/l,upperdir=/u",
    "926 901 7:0 / /loop rw - ext4 /dev/loop0 rw",
    "927 901 254:16 / /virtual rw - ext4 /dev/vdb rw",
    "928 901 259:2 / /quick rw - xfs /dev/nvme1n1 rw",
    "9999999999999999999 901 0:74 / /long rw - nfs4 s:/l rw",
};

static const struct row {
    const char *path, *kind;
    uint32_t group;
    const char *server;
    uint64_t read_bytes, connections;
    const char *advice; /* the first letters of each, followed by a bar */
} rows[] = {
    {"/x", "ext4", STOKER_FILESYSTEM_DISK, "", STOKER_UNKNOWN, STOKER_UNKNOWN, ""},
    {"/nfs/a/b", "nfs", STOKER_FILESYSTEM_NETWORK, "filer.lan", 262144, 1,
     "rsize is 256|one connection|read-ahead is 128|"},
    {"/nfsx", "ext4", STOKER_FILESYSTEM_DISK, "", STOKER_UNKNOWN, STOKER_UNKNOWN, ""},
    {"/nfs/soft", "nfs", STOKER_FILESYSTEM_NETWORK, "10.0.0.1", 1 << 20, 8,
     "the mount is soft|attributes are not|"},
    {"/efs/d", "nfs", STOKER_FILESYSTEM_NETWORK, "fs-1.efs.eu-west-1.amazonaws.com", 1 << 20, 1,
     ""},
    {"/lustre/d", "lustre", STOKER_FILESYSTEM_NETWORK, "10.0.0.5@tcp", STOKER_UNKNOWN,
     STOKER_UNKNOWN, "mounted without flock|"},
    {"/gpfs", "gpfs", STOKER_FILESYSTEM_NETWORK, "", STOKER_UNKNOWN, STOKER_UNKNOWN, ""},
    {"/ceph", "cephfs", STOKER_FILESYSTEM_NETWORK, "10.0.0.6:6789,10.0.0.7:6789", STOKER_UNKNOWN,
     STOKER_UNKNOWN, ""},
    {"/weka", "wekafs", STOKER_FILESYSTEM_NETWORK, "", STOKER_UNKNOWN, STOKER_UNKNOWN, ""},
    {"/beegfs", "beegfs", STOKER_FILESYSTEM_NETWORK, "", STOKER_UNKNOWN, STOKER_UNKNOWN, ""},
    {"/nine", "9p", STOKER_FILESYSTEM_NETWORK, "", 131072, STOKER_UNKNOWN,
     "a request fetches 128|"},
    {"/virtio", "virtiofs", STOKER_FILESYSTEM_NETWORK, "", STOKER_UNKNOWN, STOKER_UNKNOWN, ""},
    {"/smb", "smb", STOKER_FILESYSTEM_NETWORK, "nas", 65536, STOKER_UNKNOWN,
     "a request fetches 64|"},
    {"/bucket", "gcsfuse", STOKER_FILESYSTEM_FUSE, "", 131072, STOKER_UNKNOWN,
     "a request fetches 128|/bucket is a bucket|"},
    {"/odd", "fuse", STOKER_FILESYSTEM_FUSE, "", STOKER_UNKNOWN, STOKER_UNKNOWN, ""},
    {"/fast", "xfs", STOKER_FILESYSTEM_DISK, "", STOKER_UNKNOWN, STOKER_UNKNOWN,
     "scheduler mq-deadline|"},
    {"/btr/x", "btrfs", STOKER_FILESYSTEM_DISK, "", STOKER_UNKNOWN, STOKER_UNKNOWN,
     "sda is a rotating disk|"},
    {"/strange", "unknown", STOKER_FILESYSTEM_UNKNOWN, "", STOKER_UNKNOWN, STOKER_UNKNOWN, ""},
    {"/twice/y", "nfs", STOKER_FILESYSTEM_NETWORK, "[fd00::1]", 1 << 20, 2, ""},
    {"/udp/d", "nfs", STOKER_FILESYSTEM_NETWORK, "10.0.0.1", 1 << 20, 2, "NFS over UDP|"},
    {"/rdma/d", "nfs", STOKER_FILESYSTEM_NETWORK, "s", 1 << 20, 1, ""},
    {"/folders/d", "nfs", STOKER_FILESYSTEM_NETWORK, "s", 1 << 20, 2, "attributes are not|"},
    {"/flock", "lustre", STOKER_FILESYSTEM_NETWORK, "10.0.0.5@tcp", STOKER_UNKNOWN, STOKER_UNKNOWN,
     ""},
    {"/blob", "blobfuse", STOKER_FILESYSTEM_FUSE, "", STOKER_UNKNOWN, STOKER_UNKNOWN,
     "/blob is a bucket|"},
    {"/layer", "overlay", STOKER_FILESYSTEM_LAYERED, "", STOKER_UNKNOWN, STOKER_UNKNOWN,
     "a layer of a container|"},
    {"/loop", "ext4", STOKER_FILESYSTEM_DISK, "", STOKER_UNKNOWN, STOKER_UNKNOWN, ""},
    {"/virtual", "ext4", STOKER_FILESYSTEM_DISK, "", STOKER_UNKNOWN, STOKER_UNKNOWN, ""},
    {"/quick", "xfs", STOKER_FILESYSTEM_DISK, "", STOKER_UNKNOWN, STOKER_UNKNOWN, ""},
    {"/long", "ext4", STOKER_FILESYSTEM_DISK, "", STOKER_UNKNOWN, STOKER_UNKNOWN, ""}, /* no row */
};

static char tree[] = "/tmp/stoker-ground-XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512];

    snprintf(full, sizeof full, "%s/%s", tree, path);
    for (char *at = full + strlen(tree) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(full, 0777);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0) {
        t_skip("cannot write to /tmp");
    }
}

static void put_tree(void)
{
    static char text[8192];

    for (size_t i = 0; i < STK_COUNT(table); i++) {
        size_t used = strlen(text);

        snprintf(text + used, sizeof text - used, "%s\n", table[i]);
    }
    put("proc/self/mountinfo", text);
    put("sys/class/bdi/0:51/read_ahead_kb", "128\n");
    put("sys/class/bdi/0:52/read_ahead_kb", "15360\n");
    put("sys/dev/block/259:1/uevent", "MAJOR=259\nDEVNAME=nvme0n1p1\nDEVTYPE=partition\n");
    put("sys/dev/block/259:1/partition", "1\n");
    put("sys/dev/block/uevent", "DEVNAME=nvme0n1\n"); /* the disk that contains the partition */
    put("sys/dev/block/queue/rotational", "0\n");
    put("sys/dev/block/queue/nr_requests", "1023\n");
    put("sys/dev/block/queue/scheduler", "none [mq-deadline] kyber\n");
    put("sys/dev/block/queue/read_ahead_kb", "512\n");
    put("sys/dev/block/7:0/uevent", "DEVNAME=loop0\n");
    put("sys/dev/block/7:0/queue/rotational", "1\n"); /* no disk of its own, nor has a guest's */
    put("sys/dev/block/254:16/uevent", "DEVNAME=vdb\n");
    put("sys/dev/block/254:16/queue/rotational", "1\n");
    put("sys/dev/block/259:2/uevent", "DEVNAME=nvme1n1\n");
    put("sys/dev/block/259:2/queue/scheduler", "[none] mq-deadline\n");
    put("sys/class/block/sda/uevent", "DEVNAME=sda\n");
    put("sys/class/block/sda/queue/rotational", "1\n");
    put("sys/class/block/sda/queue/scheduler", "bfq\n");
}

static struct stoker_filesystem ground;

static void begin(const char *path)
{
    ground = (struct stoker_filesystem){0};
    stk_filesystem_init(&ground);
    snprintf(ground.path, sizeof ground.path, "%s", path);
    ground.info.responds = true;
}

/* All that was advised is in the row, in its order, and the reverse. */
static void check_advice(const char *name, const char *wanted)
{
    for (uint32_t i = 0; i < ground.advice_count; i++) {
        const char *end = strchr(wanted, '|');
        size_t length = end ? (size_t)(end - wanted) : 0;

        if (!T_TRUE(name, end && strncmp(ground.advices[i].what, wanted, length) == 0)) {
            printf("advice: %s\n", ground.advices[i].what);
        }
        T_TRUE(name, ground.advices[i].reason[0] != '\0');
        wanted = end ? end + 1 : wanted;
    }
    T_STR(name, wanted, "");
}

static void test_rows(void)
{
    T_EACH(row, row, rows)
    {
        begin(row->path);
        stk_filesystem_evaluate(&ground, tree);
        T_STR(row->path, ground.info.kind, row->kind);
        T_EQ(row->path, ground.info.group, row->group);
        T_STR(row->path, ground.info.server, row->server);
        T_EQ(row->path, ground.info.read_bytes, row->read_bytes);
        T_EQ(row->path, ground.info.connections, row->connections);
        check_advice(row->path, row->advice);
    }
}

static void test_nfs(void)
{
    const struct stoker_filesystem_info *info = &ground.info;

    begin("/nfs/a");
    stk_filesystem_evaluate(&ground, tree);
    T_STR("nfs", info->mount_point, "/nfs");
    T_STR("nfs", info->source, "filer.lan:/export/a b");
    T_STR("nfs", info->version, "4.2");
    T_STR("nfs", info->transport, "tcp");
    T_STR("nfs", info->recovery, "hard");
    T_EQ("nfs", info->write_bytes, 524288);
    T_EQ("nfs", info->timeout_tenths, 600);
    T_EQ("nfs", info->retries, 2);
    T_EQ("nfs", info->file_attribute_cache_s, 60);
    T_EQ("nfs", info->read_ahead_bytes, 128 << 10);
    T_STR("nfs", ground.advices[0].command,
          "umount /nfs && mount -t nfs4 -o rsize=1048576,wsize=1048576 'filer.lan:/export/a b' "
          "/nfs");
    T_EQ("nfs", ground.advices[0].level, STOKER_ADVICE_FINDING);
    T_STR("nfs", ground.advices[2].command, "echo 4096 > /sys/class/bdi/0:51/read_ahead_kb");
    begin("/nfs/soft/x");
    stk_filesystem_evaluate(&ground, tree);
    T_EQ("noac", info->file_attribute_cache_s, 0);
    T_EQ("noac", info->folder_attribute_cache_s, 0);
    T_EQ("noac", info->read_ahead_bytes, 15360 << 10);
    begin("/twice");
    stk_filesystem_evaluate(&ground, tree);
    T_EQ("actimeo", info->file_attribute_cache_s, 5);
    T_EQ("actimeo", info->folder_attribute_cache_s, 5);
    begin("/twice");
    ground.probe.mount_id = 918; /* the one below, by its number */
    stk_filesystem_evaluate(&ground, tree);
    T_STR("by number", info->kind, "tmpfs");
    begin("/ceph/x");
    stk_filesystem_evaluate(&ground, tree);
    T_EQ("ro", info->is_read_only, true);
}

static void test_silence(void)
{
    begin("/nfs/dead");
    ground.info.responds = false;
    ground.probe = (struct stk_mount_probe_info){0};
    stk_filesystem_evaluate(&ground, tree);
    T_STR("silent", ground.info.kind, "nfs");
    T_STR("silent", ground.advices[0].what, "filer.lan does not respond");
    T_HAS("silent", ground.advices[0].reason, "the mount is hard");
    T_STR("silent", ground.advices[0].command, "rpcinfo -T tcp filer.lan nfs");
    T_EQ("silent", ground.info.bytes_total, STOKER_UNKNOWN);
}

static void test_disks(void)
{
    begin("/fast/x");
    stk_filesystem_evaluate(&ground, tree);
    T_STR("partition", ground.info.device, "nvme0n1");
    T_STR("partition", ground.info.scheduler, "mq-deadline");
    T_EQ("partition", ground.info.queue_depth, 1023);
    T_EQ("partition", ground.info.rotational, 0);
    T_EQ("partition", ground.info.read_ahead_bytes, 512 << 10);
    T_STR("partition", ground.advices[0].command, "echo none > /sys/block/nvme0n1/queue/scheduler");
    begin("/btr/x");
    stk_filesystem_evaluate(&ground, tree);
    T_STR("disk", ground.info.device, "sda");
    T_STR("disk", ground.info.scheduler, "bfq");
    T_EQ("disk", ground.info.rotational, 1);
    T_EQ("disk", ground.info.queue_depth, STOKER_UNKNOWN);
}

/* The reported size of cold reads: read_size_test.c has the rows; this tests that they are
 * reported. */
static void test_reads(void)
{
    static const struct reads_of {
        const char *path;
        bool is_folder;
        uint32_t block_bytes;
        uint64_t gap, most;
    } cases[] = {
        {"/x", false, 1 << 20, 64 << 10, 4 << 20},
        {"/nfs/a", false, 1 << 20, 64 << 10, 4 << 20},
        {"/efs/a", true, 0, 256 << 10, 4 << 20},
        {"/gpfs/a", true, 8 << 20, 1 << 20, 8 << 20},
        {"/gpfs", true, 0, 256 << 10, 4 << 20},
        {"/bucket/a", false, 4096, 64 << 10, 128 << 10},
        {"/odd/a", false, 4096, 256 << 10, 1 << 20},
    };

    T_EACH(reads_of, row, cases)
    {
        begin(row->path);
        ground.probe.is_folder = row->is_folder;
        ground.probe.file_block_bytes = row->block_bytes;
        stk_filesystem_evaluate(&ground, tree);
        T_EQ(row->path, ground.info.coalesce_gap_bytes, row->gap);
        T_EQ(row->path, ground.info.coalesce_bytes_max, row->most);
    }
}

/* The values that the file system would have reported. */
static void test_reported_values(void)
{
    begin("/lustre/it's");
    ground.probe.layout =
        (struct stk_stripe_layout){.parts = 1, .stripe_count = 1, .stripe_bytes = 1 << 20};
    ground.probe.has_layout = ground.probe.has_residency = ground.probe.is_folder = true;
    ground.probe.files = (struct stk_filesystem_files){.seen = 600,
                                                       .archived = 600,
                                                       .bytes = 600000,
                                                       .bytes_archived = 600000,
                                                       .largest_bytes = 5ull << 30};
    stk_filesystem_evaluate(&ground, tree);
    T_EQ("away", ground.info.residency, STOKER_RESIDENCY_ARCHIVED);
    T_EQ("away", ground.info.stripe_count, 1);
    check_advice("away",
                 "large files are on one|mounted without flock|600 of 600|many small|8 threads|");
    T_STR("away", ground.advices[0].command, "lfs migrate -c 4 -S 4M '/lustre/it'\\''s'");
    T_STR("away", ground.advices[2].command, "stoker prewarm '/lustre/it'\\''s'");
    T_STR("away", ground.advices[4].command,
          "stoker bench --raw --cold --network-fs-threads 32 '/lustre/it'\\''s'");
    begin("/gpfs/x");
    ground.probe.has_residency = true;
    ground.probe.files = (struct stk_filesystem_files){.seen = 2, .archived = 1, .bytes = 9};
    stk_filesystem_evaluate(&ground, tree);
    T_EQ("partly", ground.info.residency, STOKER_RESIDENCY_PARTIAL);
    begin("/fast/x");
    ground.probe.has_space = true;
    ground.probe.bytes_total = 1000;
    ground.probe.bytes_free = 9;
    ground.probe.files_total = 1000;
    ground.probe.files_free = 9;
    stk_filesystem_evaluate(&ground, tree);
    check_advice("full", "nearly full|few inodes|scheduler|");
    begin("/ceph/x"); /* files that are only read need no space */
    ground.probe.has_space = true;
    ground.probe.bytes_total = 1000;
    stk_filesystem_evaluate(&ground, tree);
    check_advice("read only", "");
    begin("/nowhere"); /* no table at all: the magic number decides */
    ground.probe.magic = 0x19830326;
    stk_filesystem_evaluate(&ground, "/nonexistent");
    T_STR("magic", ground.info.kind, "beegfs");
    T_STR("magic", stk_filesystem_type_of((struct stk_view){(const uint8_t *)"fuse.x", 6}, 0)->name,
          "fuse");
    T_STR("magic",
          stk_filesystem_type_of((struct stk_view){(const uint8_t *)"x", 1}, 0x01021994)->name,
          "tmpfs");
}

/* The reported values of files, and the resulting advice. */
static void test_files(void)
{
    static const struct case_of {
        const char *name, *path;
        uint64_t stripes, most, seen, bytes;
        const char *advice;
    } cases[] = {
        {"small ones, striped", "/flock/d", 4, 1000, 10, 10000, "small files are striped|"},
        {"small ones, of one stripe", "/flock/d", 1, 1000, 10, 10000, ""},
        {"small files, nothing reported", "/flock/d", STOKER_UNKNOWN, 1000, 10, 10000, ""},
        {"large ones, striped", "/flock/d", 4, 5ull << 30, 2, 6ull << 30, ""},
        {"large ones, of one stripe", "/flock/d", 1, 5ull << 30, 2, 6ull << 30, "large files are|"},
        {"not so large ones", "/flock/d", 1, 1ull << 30, 2, 2ull << 30, ""},
        {"many, not small", "/gpfs/d", STOKER_UNKNOWN, 1 << 20, 600, 600ull << 20, ""},
        {"many small ones", "/gpfs/d", STOKER_UNKNOWN, 1000, 600, 600000, "many small|8 threads|"},
        {"not so many", "/gpfs/d", STOKER_UNKNOWN, 1000, 499, 499000, ""},
        {"at home", "/quick/d", STOKER_UNKNOWN, 1000, 600, 600000, ""},
    };

    T_EACH(case_of, row, cases)
    {
        begin(row->path);
        ground.probe.has_layout = row->stripes != STOKER_UNKNOWN;
        ground.probe.layout = (struct stk_stripe_layout){
            .parts = 1, .stripe_count = (uint32_t)row->stripes, .stripe_bytes = 1 << 20};
        ground.probe.files = (struct stk_filesystem_files){
            .seen = row->seen, .bytes = row->bytes, .largest_bytes = row->most};
        stk_filesystem_evaluate(&ground, tree);
        check_advice(row->name, row->advice);
    }
    begin("/smb");
    stk_filesystem_evaluate(&ground, tree);
    T_STR("smb", ground.advices[0].command,
          "umount /smb && mount -t cifs -o rsize=4194304 //nas/share /smb");
    begin("/nine");
    stk_filesystem_evaluate(&ground, tree);
    T_STR("9p", ground.advices[0].command,
          "umount /nine && mount -t 9p -o trans=virtio,msize=1048576 share /nine");
    begin("/blob");
    stk_filesystem_evaluate(&ground, tree);
    T_STR("blobfuse", ground.advices[0].command, "stoker info az://BUCKET/PREFIX");
}

static void number(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static size_t plain(uint8_t *at, uint32_t magic, uint32_t pattern, uint32_t stripe, uint32_t count)
{
    memset(at, 0, 48);
    number(at, magic, 4);
    number(at + 4, pattern, 4);
    number(at + 24, stripe, 4);
    number(at + 28, count, 2);
    memcpy(at + 32, "flash", magic == 0x0bd10bd0 ? 0 : 6);
    return magic == 0x0bd10bd0 ? 32 : 48;
}

static void test_lustre(void)
{
    struct stk_stripe_layout layout;
    uint8_t bytes[512] = {0};
    size_t used = plain(bytes, 0x0bd10bd0, 1, 1 << 20, 4);

    T_EQ("v1", stk_stripe_layout_lustre((struct stk_view){bytes, used}, &layout), 0);
    T_EQ("v1", layout.stripe_count, 4);
    T_EQ("v1", layout.stripe_bytes, 1 << 20);
    T_EQ("v1", layout.is_released, false);
    T_STR("v1", layout.pool, "");
    used = plain(bytes, 0x0bd30bd0, 0x80000001, 4 << 20, 65535);
    T_EQ("v3", stk_stripe_layout_lustre((struct stk_view){bytes, used}, &layout), 0);
    T_EQ("v3", layout.stripe_count, STK_STRIPE_LAYOUT_ALL);
    T_EQ("v3", layout.is_released, true);
    T_STR("v3", layout.pool, "flash");
    for (size_t cut = 0; cut < used; cut++) {
        T_EQ("cut", stk_stripe_layout_lustre((struct stk_view){bytes, cut}, &layout),
             STOKER_ERROR_CORRUPT);
    }
    /* Two parts: 64 KiB with the metadata, the rest on 8 servers; a third is not made yet. */
    memset(bytes, 0, sizeof bytes);
    number(bytes, 0x0bd60bd0, 4);
    number(bytes + 14, 3, 2);
    number(bytes + 16, 1, 2);
    for (uint32_t i = 0; i < 3; i++) {
        uint8_t *entry = bytes + 32 + 48 * i;

        number(entry + 4, i < 2 ? 0x10 : 0, 4);
        number(entry + 24, 176 + 48 * i, 4);
        number(entry + 28, 48, 4);
    }
    plain(bytes + 176, 0x0bd30bd0, 0x100, 1 << 16, 0);
    plain(bytes + 224, 0x0bd30bd0, 1, 4 << 20, 8);
    plain(bytes + 272, 0x0bd30bd0, 1, 1 << 20, 99);
    T_EQ("parts", stk_stripe_layout_lustre((struct stk_view){bytes, 320}, &layout), 0);
    T_EQ("parts", layout.parts, 3);
    T_EQ("parts", layout.mirrors, 2);
    T_EQ("parts", layout.stripe_count, 8);
    T_EQ("parts", layout.stripe_bytes, 4 << 20);
    T_TRUE("parts", !layout.is_released);
    T_EQ("cut in the last", stk_stripe_layout_lustre((struct stk_view){bytes, 300}, &layout),
         STOKER_ERROR_CORRUPT);
    number(bytes + 176 + 4, 0x80000100, 4); /* of the first HSM has archived the data */
    T_EQ("released", stk_stripe_layout_lustre((struct stk_view){bytes, 320}, &layout), 0);
    T_TRUE("released", layout.is_released);
    number(bytes + 32 + 24, 300, 4); /* past the end */
    T_EQ("outside", stk_stripe_layout_lustre((struct stk_view){bytes, 320}, &layout),
         STOKER_ERROR_CORRUPT);
    number(bytes + 32 + 24, UINT32_MAX, 4);
    T_EQ("outside", stk_stripe_layout_lustre((struct stk_view){bytes, 320}, &layout),
         STOKER_ERROR_CORRUPT);
}

static void test_ceph(void)
{
    static const struct text {
        const char *text;
        int status;
    } cases[] = {
        {"stripe_unit=4194304 stripe_count=2 object_size=4194304 pool=data", 0},
        {"stripe_count=2 stripe_unit=4194304", 0},
        {"stripe_unit=4194304", STOKER_ERROR_CORRUPT},
        {"stripe_unit=0 stripe_count=2", STOKER_ERROR_CORRUPT},
        {"stripe_unit=1 stripe_count=99999999999999999999", STOKER_ERROR_CORRUPT},
        {"stripe_unit=4194304 stripe_count=18446744073709551618", STOKER_ERROR_CORRUPT},
        {"stripe_unit=1x stripe_count=1", STOKER_ERROR_CORRUPT},
        {"", STOKER_ERROR_CORRUPT},
    };
    struct stk_stripe_layout layout;

    T_EACH(text, row, cases)
    {
        struct stk_view text = {(const uint8_t *)row->text, strlen(row->text)};

        T_EQ(row->text, stk_stripe_layout_ceph(text, &layout), row->status);
        T_EQ(row->text, layout.stripe_bytes, row->status ? 0 : 4194304);
        T_EQ(row->text, layout.stripe_count, row->status ? 0 : 2);
    }
}

/* The file system of this machine: the probe, and the guarantees of the header. */
static void test_here(void)
{
    struct stoker_filesystem *opened = NULL;
    struct stoker_filesystem_info info = {.struct_size = sizeof info};
    struct {
        struct stoker_filesystem_info info;
        uint64_t more;
    } newer = {.more = 9};
    struct stoker_filesystem_options options = {.struct_size = sizeof options, .files_max = 3};
    struct stoker_advice advice = {.struct_size = sizeof advice};
    struct stoker_error error = {0};

    T_EQ("here", stoker_filesystem_open(&opened, tree, &options, &error), 0);
    T_EQ("here", stoker_filesystem_info(opened, &info), 0);
    T_EQ("here", info.responds, 1);
    T_EQ("here", info.is_folder, 1);
    T_TRUE("here", info.coalesce_gap_bytes >= 64 << 10 && info.coalesce_bytes_max >= 64 << 10);
    T_TRUE("here", info.bytes_total > 0 && info.files <= 3 && info.mount_point[0] == '/');
    T_EQ("here", stoker_filesystem_advice(opened, UINT32_MAX, &advice), 0);
    info.struct_size = STK_OPTIONS_BYTES_MAX + 1;
    T_EQ("size", stoker_filesystem_info(opened, &info), STOKER_ERROR_ARGUMENT);
    newer.info.struct_size = sizeof newer;
    T_EQ("newer", stoker_filesystem_info(opened, &newer.info), 0);
    T_EQ("newer", newer.info.responds, 1);
    T_EQ("newer", newer.more, 0);
    stoker_filesystem_close(opened);
    T_EQ("none", stoker_filesystem_open(&opened, "/nonexistent/x", NULL, &error), -ENOENT);
    T_ERROR("none", &error);
    T_EQ("url", stoker_filesystem_open(&opened, "s3://b/k", NULL, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR("url", &error);
    stoker_filesystem_close(NULL);
}

/* A table that is longer than the memory of the first attempt is read to its end. */
static void test_long_table(void)
{
    static char text[200000], prefix[64], *read;
    struct stk_view rest;
    struct stk_mount_row row = {0};
    size_t used = 0;
    unsigned left = 0;

    for (unsigned i = 1; used < sizeof text - 200; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%u 1 0:%u / /mnt/%u rw,relatime - tmpfs none rw\n", i, i, i);
        left = i;
    }
    put("long/proc/self/mountinfo", text);
    snprintf(prefix, sizeof prefix, "%s/long", tree);
    read = stk_mountinfo_read(prefix);
    T_EQ("bytes", read ? strlen(read) : 0, used);
    rest = (struct stk_view){(const uint8_t *)read, used};
    while (stk_mount_next(&rest, &row)) {
        left--;
    }
    T_EQ("rows", left, 0);
    stk_free(read);
}

int main(void)
{
    char command[128];

    if (!mkdtemp(tree)) {
        t_skip("no folder in /tmp");
    }
    put_tree();
    test_rows();
    test_nfs();
    test_silence();
    test_disks();
    test_reads();
    test_reported_values();
    test_files();
    test_lustre();
    test_ceph();
    test_here();
    test_long_table();
    snprintf(command, sizeof command, "rm -r %s", tree);
    return t_finish() | (system(command) != 0);
}
