/* Goal: cores and memory are the limits of the tightest control group among the process's own group
 * and its parents.
 * Method: rows, each a tree of fake /proc and cgroup files as in containers and on hosts. */
#include "io/cgroup.h"

#include "io/io.h"
#include "test/t.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMINFO "MemTotal:       16384 kB\nMemFree: 1 kB\n"
#define MIB (1ull << 20)
#define V2 "30 23 0:26 / /cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1                                                                                         \
    "31 23 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"                                     \
    "32 23 0:30 / /cg/memory rw - cgroup cgroup rw,memory\n"                                       \
    "33 23 0:31 / /cg/cpuset rw - cgroup cgroup rw,cpuset\n"

struct file {
    const char *path, *text;
};

static const struct row {
    const char *name;
    uint32_t affinity, want_cores;
    uint64_t want_bytes;
    struct file files[8];
} rows[] = {
    {"nothing at all", 3, 3, 1024 * MIB, {{0}}},
    {"no groups", 4, 4, 16 * MIB, {{"proc/meminfo", MEMINFO}}},
    {"v2 without limits",
     4,
     4,
     16 * MIB,
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/user.slice/x.scope\n"},
      {"proc/self/mountinfo", V2},
      {"cg/user.slice/x.scope/cpu.max", "max 100000\n"},
      {"cg/user.slice/x.scope/memory.max", "max\n"}}},
    {"v2, a quota rounded up",
     8,
     2,
     8 * MIB,
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/job\n"},
      {"proc/self/mountinfo", V2},
      {"cg/job/cpu.max", "150000 100000\n"},
      {"cg/job/memory.max", "8388608\n"}}},
    {"v2, less than a core",
     8,
     1,
     16 * MIB,
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/job\n"},
      {"proc/self/mountinfo", V2},
      {"cg/job/cpu.max", "5000 100000\n"}}},
    {"v2, the parent is tighter",
     8,
     3,
     4 * MIB,
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/a/b/c\n"},
      {"proc/self/mountinfo", V2},
      {"cg/a/b/c/cpu.max", "600000 100000\n"},
      {"cg/a/cpu.max", "300000 100000\n"},
      {"cg/a/memory.max", "4194304\n"},
      {"cg/a/b/c/memory.max", "8388608\n"}}},
    {"v2, high is a limit too",
     8,
     8,
     2 * MIB,
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/a\n"},
      {"proc/self/mountinfo", V2},
      {"cg/a/memory.high", "2097152\n"},
      {"cg/a/memory.max", "8388608\n"}}},
    {"v2 in a container: its group is the root",
     8,
     2,
     1 * MIB,
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "0::/\n"},
      {"proc/self/mountinfo", V2},
      {"cg/cpu.max", "200000 100000\n"},
      {"cg/memory.max", "1048576\n"}}},
    {"v1",
     8,
     3,
     5 * MIB,
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "9:cpuset:/\n4:memory:/m\n2:cpu,cpuacct:/c/d\n"},
      {"proc/self/mountinfo", V1},
      {"cg/cpu/c/d/cpu.cfs_quota_us", "250000\n"},
      {"cg/cpu/c/d/cpu.cfs_period_us", "100000\n"},
      {"cg/memory/m/memory.limit_in_bytes", "5242880\n"}}},
    {"v1 without limits",
     8,
     8,
     16 * MIB,
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "4:memory:/m\n2:cpu,cpuacct:/c\n"},
      {"proc/self/mountinfo", V1},
      {"cg/cpu/c/cpu.cfs_quota_us", "-1\n"},
      {"cg/cpu/c/cpu.cfs_period_us", "100000\n"},
      {"cg/memory/m/memory.limit_in_bytes", "9223372036854771712\n"}}},
    {"v1 in docker without namespaces: the mount's root is the group",
     8,
     1,
     16 * MIB,
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "2:cpu,cpuacct:/docker/f00\n"},
      {"proc/self/mountinfo", "31 23 0:29 /docker/f00 /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"},
      {"cg/cpu/cpu.cfs_quota_us", "100000\n"},
      {"cg/cpu/cpu.cfs_period_us", "100000\n"}}},
    {"garbage",
     5,
     5,
     16 * MIB,
     {{"proc/meminfo", MEMINFO},
      {"proc/self/cgroup", "\n::\n0::\n:::\n0::/../../x\n"},
      {"proc/self/mountinfo", "\n - \n1 2 3 - cgroup2\n - cgroup2 x y\n" V2},
      {"cg/cpu.max", "x y z\n"},
      {"cg/memory.max", "-5 what\n"}}},
};

static char root[64];

/* Makes the folders of a path below root too. */
static const char *make_path(const char *path)
{
    static char full[256];

    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    return full;
}

int main(void)
{
    char command[128];

    T_EACH(row, row, rows)
    {
        snprintf(root, sizeof root, "/tmp/stoker-machine-test-XXXXXX");
        if (!mkdtemp(root)) {
            t_skip("no writable /tmp");
        }
        for (const struct file *file = row->files; file->path; file++) {
            int fd = open(make_path(file->path), O_WRONLY | O_CREAT, 0600);

            T_EQ(row->name, write(fd, file->text, strlen(file->text)), strlen(file->text));
            close(fd);
        }
        T_EQ(row->name, stk_cgroup_cores(root, row->affinity), row->want_cores);
        T_EQ(row->name, stk_cgroup_memory_bytes(root), row->want_bytes);
        snprintf(command, sizeof command, "rm -r %s", root);
        T_EQ(row->name, system(command), 0);
    }
    T_TRUE("here", stk_cgroup_available_cores() >= 1);
    T_TRUE("here", stk_cgroup_available_cores() <= (uint32_t)sysconf(_SC_NPROCESSORS_CONF));
    T_TRUE("here", stk_cgroup_available_memory() >= 64 * MIB);
    T_TRUE("here", stk_cgroup_available_memory() <=
                       (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
    return t_finish();
}
