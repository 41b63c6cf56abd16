/* io/ipc/file_users.h: which files the processes of this machine have open or mapped, as /proc
 * shows it. Processes of other users, containers and machines are not seen: a lock or an age must
 * protect their files. Owner: the caller; deinit accepts a zeroed struct. Threads: one. Memory: 8
 * bytes for each file. Bound: STK_FILE_USERS_MAX files; with more, every file counts as used. */
#ifndef IO_IPC_FILE_USERS_H
#define IO_IPC_FILE_USERS_H

#include "base/base.h"

#define STK_FILE_USERS_MAX 65536u

struct stk_file_users {
    uint64_t *inodes; /* owned */
    size_t count, capacity;
    bool is_unknown; /* /proc cannot be read, or there are too many files */
};

/* Lists the files in use whose names (without folders) is_wanted accepts. Returns 0 or -ENOMEM. */
int stk_file_users_list(struct stk_file_users *users, bool (*is_wanted)(const char *name));
/* Whether a file with this inode number and a wanted name is in use; true if that is unknown. */
bool stk_file_users_has(const struct stk_file_users *users, uint64_t inode);
void stk_file_users_deinit(struct stk_file_users *users);

#endif
