/* Reads the source of a copy. */
#include "base/mem.h"
#include "tools/copy/copy.h"

#include <stdio.h>
#include <string.h>

int stk_copy_fail_changed(const struct stk_copy_file *file, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CHANGED, "the file changed while it was read",
                    "copy it again when no process writes to it", "'%.400s'", file->from);
}

/* Short reads are changes: the file was longer when it was opened. */
int stk_copy_file_read(struct stoker_copy *copy, struct stk_copy_file *file, uint64_t offset,
                       struct stk_view *part, struct stoker_error *error)
{
    uint8_t *buffer = (uint8_t *)(uintptr_t)part->data;
    size_t done = 0;

    while (done < part->bytes) {
        int64_t got = stk_io_read_wait(copy->io, file->source, offset + done, buffer + done,
                                       part->bytes - done);

        if (got == 0) {
            return stk_copy_fail_changed(file, error);
        }
        if (got < 0) {
            if (!error || !stk_io_last_read_error(copy->io, file->source, (int)got, error)) {
                stk_fail(error, (int)got, "cannot read the file", "check the disk, or the server",
                         "'%.400s' offset %llu", file->from, (unsigned long long)offset);
            }
            return (int)got;
        }
        done += (size_t)got;
    }
    return 0;
}
