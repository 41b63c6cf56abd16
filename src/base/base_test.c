/* Goal: errors carry what, where and advice; budgets are never passed; threads of ours get no
 * signal.
 * Method: rows of errors, and fail-nth on the allocator.
 * Covers thread.c. */
#include "base/mem.h"
#include "base/thread.h"
#include "test/t.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static void test_errors(void)
{
    struct stoker_error error = {0};
    char long_name[1000] = "";

    T_EQ("status",
         stk_fail(&error, STOKER_ERROR_CORRUPT, "cannot read member header", "run 'stoker verify'",
                  "%s", "bad checksum"),
         STOKER_ERROR_CORRUPT);
    stk_error_place(&error, "train.tar", 512, "a/b");
    T_ERROR("placed", &error);
    T_STR("where", error.where, "'train.tar' offset 512 key 'a/b': bad checksum");
    stk_fail(&error, -EACCES, "w", "a", "HTTP 403");
    stk_error_place(&error, "s3://b/\n.tar", STOKER_NO_OFFSET, NULL);
    stk_error_place(&error, "s3://b/\n.tar", 7, "k");
    T_STR("twice", error.where, "'s3://b/\\x0a.tar' offset 7 key 'k': HTTP 403");
    stk_fail(&error, STOKER_ERROR_CORRUPT, "w", "a", "'\033[2J\n\x7f\xc2\x9b\xc3\xa9'");
    T_STR("nothing for the terminal", error.where, "'\\x1b[2J\\x0a\\x7f\\xc2\\x9b\xc3\xa9'");
    stk_error_place(&error, "a\rb.tar", 512, "k\033]0;x\a");
    T_STR("nor from names", error.where, "'a\\x0db.tar' offset 512 key 'k\\x1b]0;x\\x07'");
    T_STR("which stay as they are", error.key, "k\033]0;x\a");
    memset(long_name, '\n', sizeof long_name - 1);
    stk_fail(&error, STOKER_ERROR_CORRUPT, "w", "a", "%s", long_name);
    T_TRUE("cut between two",
           strlen(error.where) % 4 == 0 && strlen(error.where) + 4 >= sizeof error.where - 1);
    T_EQ("errno", stk_fail_errno(&error, ENOENT, "cannot open", "check the path", "'%s'", "x"),
         -ENOENT);
    T_HAS("reason", error.what, "No such file");
    T_EQ("null", stk_fail(NULL, -1, "a", "b", "c"), -1);
    T_STR("name", stoker_status_name(STOKER_ERROR_LIMIT), "STOKER_ERROR_LIMIT");
    T_STR("errno name", stoker_status_name(-EIO), "EIO");
}

static void test_memory(void)
{
    struct stk_budget budget = {.bytes_max = 100};
    int64_t alive = stk_mem_alive();
    void *block;

    stk_mem_fail_nth(2);
    block = stk_alloc(1, 10);
    T_TRUE("first", block != NULL);
    T_TRUE("second fails", stk_alloc(1, 10) == NULL);
    stk_free(block);
    block = stk_pages_alloc(5u << 20);
    T_TRUE("aligned", block && (uintptr_t)block % (2u << 20) == 0);
    stk_pages_free(block, 5u << 20);
    for (size_t i = 0; i < 40; i++) {
        size_t bytes = (i % 4 + 1) * (1u << 20) + 5;
        uint8_t *filled = i / 4 % 2 ? stk_pages_reserve(bytes) : stk_pages_alloc(bytes);

        if (i / 4 % 2 && filled) {
            filled[bytes / 2] = 7;
            stk_pages_fill(filled, bytes);
            T_EQ("what was written stays", filled[bytes / 2], 7);
        }
        T_TRUE("filled", filled && (uintptr_t)filled % (2u << 20) == 0 && filled[bytes - 1] == 0);
        memset(filled, 1, bytes);
        stk_pages_free(filled, bytes);
    }
    stk_mem_fail_nth(1);
    T_TRUE("none", stk_pages_reserve(2u << 20) == NULL);
    T_TRUE("too many", stk_pages_alloc(SIZE_MAX) == NULL);
    T_EQ("no leak", stk_mem_alive(), alive);

    T_TRUE("60", stk_budget_reserve(&budget, 60));
    T_TRUE("41 more is refused", !stk_budget_reserve(&budget, 41));
    T_TRUE("huge is refused", !stk_budget_reserve(&budget, UINT64_MAX));
    T_TRUE("40 more", stk_budget_reserve(&budget, 40));
    stk_budget_release(&budget, 100);
    T_EQ("peak", (long long)budget.bytes_peak, 100);
}

/* How many of n times huge pages are taken where both cost so much. */
static uint32_t huge_of(struct stk_page_choice *choice, uint32_t n, uint64_t small, uint64_t large)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n; i++) {
        bool huge = stk_page_choose(choice);

        stk_page_learn(choice, huge, huge ? large : small);
        count += huge;
    }
    return count;
}

static void test_page_choice(void)
{
    struct stk_page_choice choice = {.gap = 0};
    uint32_t huge = huge_of(&choice, 300, 1000, 7000);

    T_TRUE("dear ones are tried, and rarely", huge >= 3 && huge <= 6);
    huge = huge_of(&choice, 300, 1000, 200);
    T_TRUE("after a while, too", huge > 0);
    huge = huge_of(&choice, 3000, 1000, 200);
    T_TRUE("cheap ones are taken", huge >= 1900 && huge < 3000);
    huge = huge_of(&choice, 100, 1000, 7000);
    T_TRUE("no longer than they are cheap", huge < 10);
    choice = (struct stk_page_choice){.gap = 0};
    T_TRUE("cheap at once", huge_of(&choice, 300, 1000, 200) >= 290);
    choice = (struct stk_page_choice){.gap = 0};
    T_TRUE("free", huge_of(&choice, 300, 0, 0) >= 200);
    choice = (struct stk_page_choice){.gap = 0};
    huge = 0;
    for (uint32_t i = 0; i < 100; i++) { /* one of three costs much */
        huge += huge_of(&choice, 3, 1000, i % 3 ? 200 : 7000);
    }
    T_TRUE("cheap ones between dear ones", huge < 60);
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
        bool ours = number != SIGKILL && number != SIGSTOP && number < 32;

        T_TRUE("blocked there", !ours || sigismember(&there, number) == 1);
        T_EQ("as before here", sigismember(&after, number), sigismember(&before, number));
    }
}

int main(void)
{
    test_thread();
    test_page_choice();
    test_errors();
    test_memory();
    return t_finish();
}
