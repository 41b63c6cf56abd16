/* test/tars.h: small ustar archives in memory, for tests.
 * Owner: the test frees with t_tar_free. Threads: one. Memory: grows. Bound: the test's. */
#ifndef TEST_TARS_H
#define TEST_TARS_H

#include <stddef.h>
#include <stdint.h>

struct t_tar {
    uint8_t *data;
    size_t bytes, capacity;
};

/* One regular member. Names longer than 100 bytes are the test's mistake. */
void t_tar_add(struct t_tar *tar, const char *name, const void *data, size_t bytes);
/* The end marker. */
void t_tar_end(struct t_tar *tar);
void t_tar_free(struct t_tar *tar);
/* The same bytes gzipped into *out (freed by t_tar_free). */
void t_tar_gzip(const struct t_tar *tar, struct t_tar *out);

#endif
