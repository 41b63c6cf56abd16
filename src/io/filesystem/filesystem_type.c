/* The types that file systems register, and the magic numbers of linux/magic.h and of the sources
 * of the file systems. FUSE mounts have the type fuse.NAME, and one magic number for all. */
#include "io/filesystem/filesystem_type.h"

#include <string.h>

#define FUSE_MAGIC 0x65735546u

static const struct stk_filesystem_type kinds[] = {
    {"nfs", STOKER_FILESYSTEM_NETWORK, 0x6969, " nfs nfs4 "},
    {"lustre", STOKER_FILESYSTEM_NETWORK, 0x0bd00bd0, " lustre lustre_tgt "},
    {"gpfs", STOKER_FILESYSTEM_NETWORK, 0x47504653, " gpfs mmfs "},
    {"beegfs", STOKER_FILESYSTEM_NETWORK, 0x19830326, " beegfs beegfs_nodev fhgfs "},
    {"cephfs", STOKER_FILESYSTEM_NETWORK, 0x00c36400, " ceph fuse.ceph fuse.ceph-fuse "},
    {"wekafs", STOKER_FILESYSTEM_NETWORK, 0, " wekafs "},
    {"panfs", STOKER_FILESYSTEM_NETWORK, 0xaad7aaea, " panfs "},
    {"smb", STOKER_FILESYSTEM_NETWORK, 0xff534d42, " cifs smb3 smbfs "},
    {"smb", STOKER_FILESYSTEM_NETWORK, 0xfe534d42, " smb2 "},
    {"9p", STOKER_FILESYSTEM_NETWORK, 0x01021997, " 9p "},
    {"virtiofs", STOKER_FILESYSTEM_NETWORK, 0, " virtiofs "},
    {"afs", STOKER_FILESYSTEM_NETWORK, 0x5346414f, " afs "},
    {"orangefs", STOKER_FILESYSTEM_NETWORK, 0x20030528, " orangefs pvfs2 "},
    {"ocfs2", STOKER_FILESYSTEM_NETWORK, 0x7461636f, " ocfs2 "},
    {"gfs2", STOKER_FILESYSTEM_NETWORK, 0x01161970, " gfs2 "},
    {"glusterfs", STOKER_FILESYSTEM_NETWORK, 0, " fuse.glusterfs "},
    {"juicefs", STOKER_FILESYSTEM_FUSE, 0, " fuse.juicefs "},
    {"gcsfuse", STOKER_FILESYSTEM_FUSE, 0, " fuse.gcsfuse "},
    {"mountpoint-s3", STOKER_FILESYSTEM_FUSE, 0, " fuse.mountpoint-s3 "},
    {"s3fs", STOKER_FILESYSTEM_FUSE, 0, " fuse.s3fs "},
    {"goofys", STOKER_FILESYSTEM_FUSE, 0, " fuse.goofys "},
    {"blobfuse", STOKER_FILESYSTEM_FUSE, 0, " fuse.blobfuse fuse.blobfuse2 "},
    {"rclone", STOKER_FILESYSTEM_FUSE, 0, " fuse.rclone "},
    {"sshfs", STOKER_FILESYSTEM_FUSE, 0, " fuse.sshfs "},
    {"fuse", STOKER_FILESYSTEM_FUSE, FUSE_MAGIC, " fuse fuseblk "},
    {"overlay", STOKER_FILESYSTEM_LAYERED, 0x794c7630, " overlay aufs "},
    {"tmpfs", STOKER_FILESYSTEM_MEMORY, 0x01021994, " tmpfs devtmpfs "},
    {"ramfs", STOKER_FILESYSTEM_MEMORY, 0x858458f6, " ramfs rootfs "},
    {"hugetlbfs", STOKER_FILESYSTEM_MEMORY, 0x958458f6, " hugetlbfs "},
    {"ext4", STOKER_FILESYSTEM_DISK, 0xef53, " ext4 "},
    {"ext3", STOKER_FILESYSTEM_DISK, 0, " ext3 "},
    {"ext2", STOKER_FILESYSTEM_DISK, 0, " ext2 "},
    {"xfs", STOKER_FILESYSTEM_DISK, 0x58465342, " xfs "},
    {"btrfs", STOKER_FILESYSTEM_DISK, 0x9123683e, " btrfs "},
    {"zfs", STOKER_FILESYSTEM_DISK, 0x2fc12fc1, " zfs "},
    {"bcachefs", STOKER_FILESYSTEM_DISK, 0xca451a4e, " bcachefs "},
    {"f2fs", STOKER_FILESYSTEM_DISK, 0xf2f52010, " f2fs "},
    {"squashfs", STOKER_FILESYSTEM_DISK, 0x73717368, " squashfs "},
    {"erofs", STOKER_FILESYSTEM_DISK, 0xe0f5e1e2, " erofs "},
    {"fat", STOKER_FILESYSTEM_DISK, 0x4d44, " vfat msdos "},
    {"exfat", STOKER_FILESYSTEM_DISK, 0x2011bab0, " exfat "},
    {"ntfs", STOKER_FILESYSTEM_DISK, 0x7366746e, " ntfs3 ntfs "},
    {"iso9660", STOKER_FILESYSTEM_DISK, 0x9660, " iso9660 "},
    {"udf", STOKER_FILESYSTEM_DISK, 0x15013346, " udf "},
    {"jfs", STOKER_FILESYSTEM_DISK, 0x3153464a, " jfs "},
    {"nilfs2", STOKER_FILESYSTEM_DISK, 0x3434, " nilfs2 "},
    {"proc", STOKER_FILESYSTEM_MEMORY, 0x9fa0, " proc "},
    {"sysfs", STOKER_FILESYSTEM_MEMORY, 0x62656572, " sysfs "},
};
static const struct stk_filesystem_type unknown = {"unknown", STOKER_FILESYSTEM_UNKNOWN, 0, " "};

static bool has_type(const struct stk_filesystem_type *kind, struct stk_view type)
{
    const char *at = kind->types;

    for (const char *end; (end = strchr(at + 1, ' ')) != NULL; at = end) {
        size_t bytes = (size_t)(end - at - 1);

        if (bytes == type.bytes && memcmp(at + 1, type.data, bytes) == 0) {
            return true;
        }
    }
    return false;
}

const struct stk_filesystem_type *stk_filesystem_type_of(struct stk_view type, uint32_t magic)
{
    bool is_fuse = type.bytes > 5 && memcmp(type.data, "fuse.", 5) == 0;

    for (size_t i = 0; i < STK_COUNT(kinds) && type.bytes > 0; i++) {
        if (has_type(&kinds[i], type)) {
            return &kinds[i];
        }
    }
    magic = is_fuse ? FUSE_MAGIC : magic;
    for (size_t i = 0; i < STK_COUNT(kinds) && magic != 0; i++) {
        if (kinds[i].magic == magic) {
            return &kinds[i];
        }
    }
    return &unknown;
}

bool stk_filesystem_type_is(const struct stk_filesystem_type *kind, const char *name)
{
    return strcmp(kind->name, name) == 0;
}
