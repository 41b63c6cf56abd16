/* Goal: errors have what, where and advice; allocations fail when a test requests it; threads of
 * the library receive no signals; arrays grow; byte orders are right.
 * Method: rows of errors; every allocation fails once. Covers thread.c. */
#include "base/byte_order.h"
#include "base/mem.h"
#include "base/thread.h"
#include "test/t.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

static void test_errors(void)
{
    struct stoker_error error = {0};
    char long_name[1000] = "";

    T_EQ("status",
         stk_fail(&error, STOKER_ERROR_CORRUPT, "cannot read member header", "run 'stoker verify'",
                  "%s", "bad checksum"),
         STOKER_ERROR_CORRUPT);
    stk_error_set_location(&error, "train.tar", 512, "a/b");
    T_ERROR("placed", &error);
    T_STR("where", error.where, "'train.tar' offset 512 key 'a/b': bad checksum");
    stk_fail(&error, -EACCES, "w", "a", "HTTP 403");
    stk_error_set_location(&error, "s3://b/\n.tar", STOKER_NO_OFFSET, NULL);
    stk_error_set_location(&error, "s3://b/\n.tar", 7, "k");
    T_STR("twice", error.where, "'s3://b/\\x0a.tar' offset 7 key 'k': HTTP 403");
    stk_fail(&error, STOKER_ERROR_CORRUPT, "w", "a", "'\033[2J\n\x7f\xc2\x9b\xc3\xa9'");
    T_STR("nothing for the terminal", error.where, "'\\x1b[2J\\x0a\\x7f\\xc2\\x9b\xc3\xa9'");
    stk_error_set_location(&error, "a\rb.tar", 512, "k\033]0;x\a");
    T_STR("nor from names", error.where, "'a\\x0db.tar' offset 512 key 'k\\x1b]0;x\\x07'");
    T_STR("which stay as they are", error.key, "k\033]0;x\a");
    memset(long_name, '\n', sizeof long_name - 1);
    stk_fail(&error, STOKER_ERROR_CORRUPT, "w", "a", "%s", long_name);
    T_TRUE("cut between two",
           strlen(error.where) % 4 == 0 && strlen(error.where) + 4 >= sizeof error.where - 1);
    T_EQ("errno", stk_fail_errno(&error, ENOENT, "cannot open", "check the path", "'%s'", "x"),
         -ENOENT);
    T_HAS("reason", error.what, "No such file");
    T_EQ("memory", stk_fail_memory(&error, "index of %d shards\n", 7), -ENOMEM);
    T_ERROR("memory", &error);
    T_STR("memory", error.where, "index of 7 shards\\x0a");
    T_EQ("memory, null", stk_fail_memory(NULL, "index"), -ENOMEM);
    T_EQ("null", stk_fail(NULL, -1, "a", "b", "c"), -1);
    T_STR("name", stoker_status_name(STOKER_ERROR_LIMIT), "STOKER_ERROR_LIMIT");
    T_STR("errno name", stoker_status_name(-EIO), "EIO");
}

static void test_memory(void)
{
    int64_t alive = stk_mem_alive();
    void *block;

    stk_mem_fail_nth(2);
    block = stk_alloc(1, 10);
    T_TRUE("first", block != NULL);
    T_TRUE("second fails", stk_alloc(1, 10) == NULL);
    stk_free(block);
    T_EQ("no leak", stk_mem_alive(), alive);
}

static void *look(void *mask)
{
    pthread_sigmask(SIG_SETMASK, NULL, mask);
    return mask;
}

static void test_thread(void)
{
    sigset_t there, before, after;
    pthread_t thread;

    look(&before);
    T_EQ("start", stk_thread_start(&thread, NULL, look, &there), 0);
    T_EQ("join", pthread_join(thread, NULL), 0);
    look(&after);
    for (int number = 1; number < SIGRTMIN; number++) {
        bool ours = number != SIGKILL && number != SIGSTOP && number != SIGBUS && number < 32;

        T_TRUE("blocked there", !ours || sigismember(&there, number) == 1);
        T_EQ("as before here", sigismember(&after, number), sigismember(&before, number));
    }
}

/* A wait ends at its time of the monotonic clock, and not before. */
static void test_cond(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct timespec until, now;
    pthread_cond_t cond;
    int status = 0;

    stk_cond_init(&cond);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 20000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&lock);
    while (status == 0) {
        status = pthread_cond_timedwait(&cond, &lock, &until);
    }
    pthread_mutex_unlock(&lock);
    clock_gettime(CLOCK_MONOTONIC, &now);
    T_EQ("timed out", status, ETIMEDOUT);
    T_TRUE("not before", now.tv_sec > until.tv_sec ||
                             (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec));
    pthread_cond_destroy(&cond);
}

static void test_reserve(void)
{
    void *block = NULL;
    uint64_t capacity = 0;

    T_EQ("first", stk_reserve(&block, &capacity, 1, 4), 0);
    T_EQ("at least", capacity, 64);
    ((uint32_t *)block)[63] = 7;
    T_EQ("enough", stk_reserve(&block, &capacity, 64, 4), 0);
    T_EQ("unchanged", capacity, 64);
    stk_mem_fail_nth(1);
    T_EQ("no memory", stk_reserve(&block, &capacity, 65, 4), -ENOMEM);
    stk_mem_fail_nth(0);
    T_EQ("retained", capacity, 64);
    T_EQ("doubles", stk_reserve(&block, &capacity, 65, 4), 0);
    T_EQ("twice", capacity, 128);
    T_EQ("the old items", ((uint32_t *)block)[63], 7);
    T_EQ("the new items", ((uint32_t *)block)[127], 0);
    T_EQ("more than twice", stk_reserve(&block, &capacity, 1000, 4), 0);
    T_EQ("as wanted", capacity, 1000);
    stk_free(block);
}

static void test_byte_order(void)
{
    uint8_t bytes[] = {0x01, 0x82, 0x03, 0x84}, back[4];

    T_EQ("big16", stk_big16(bytes), 0x0182);
    T_EQ("big32", stk_big32(bytes), 0x01820384);
    T_EQ("little16", stk_little16(bytes), 0x8201);
    T_EQ("little32", stk_little32(bytes), 0x84038201);
    T_EQ("little, 3 bytes", stk_little(bytes, 3), 0x038201);
    stk_put_little32(back, 0x84038201);
    T_EQ("put", memcmp(back, bytes, 4), 0);
}

int main(void)
{
    test_reserve();
    test_byte_order();
    test_cond();
    test_thread();
    test_errors();
    test_memory();
    return t_finish();
}
