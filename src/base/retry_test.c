/* Goal: a failure is classified as damage, transient or other; waits double up to their limit; an
 * error states how often the call was repeated.
 * Method: rows with known answers. */
#include "base/retry.h"

#include "test/t.h"

#include <errno.h>
#include <string.h>

static void test_kinds(void)
{
    static const struct kind_row {
        int status;
        bool damage, may_pass;
    } kind_rows[] = {
        {0, false, false},
        {STOKER_ERROR_CORRUPT, true, false},
        {STOKER_ERROR_TRUNCATED, true, false},
        {STOKER_ERROR_MISSING, true, false},
        {STOKER_ERROR_LIMIT, true, false},
        {STOKER_ERROR_ARGUMENT, false, false},
        {STOKER_ERROR_TIMEOUT, false, false},
        {-EIO, false, true},
        {-ESTALE, false, true},
        {-ECONNRESET, false, true},
        {-ENOENT, false, false},
        {-ENOMEM, false, false},
    };

    T_EACH(kind_row, row, kind_rows)
    {
        T_EQ(stoker_status_name(row->status), stk_error_is_data(row->status), row->damage);
        T_EQ(stoker_status_name(row->status), stk_error_is_transient(row->status), row->may_pass);
    }
}

static void test_waits(void)
{
    static const struct wait_row {
        uint32_t wait_ms, attempt;
        uint64_t want_ms;
    } wait_rows[] = {
        {100, 1, 100},
        {100, 2, 200},
        {100, 5, 1600},
        {100, UINT32_MAX, STK_RETRY_WAIT_MAX_MS},
        {STK_RETRY_WAIT_MAX_MS + 1, 1, STK_RETRY_WAIT_MAX_MS},
        {0, 3, 0},
    };

    T_EACH(wait_row, row, wait_rows)
    {
        T_EQ("wait", stk_retry_wait_ns(row->wait_ms, row->attempt), row->want_ms * 1000000u);
    }
}

static void test_words(void)
{
    struct stoker_error error = {0};

    stk_fail(&error, -EIO, "cannot read", "try again", "here");
    stk_retry_add_note(&error, 0);
    T_STR("none", error.what, "cannot read");
    stk_retry_add_note(&error, 1);
    T_STR("one", error.what, "cannot read, also after 1 retry");
    stk_retry_add_note(&error, 2);
    T_HAS("more", error.what, ", also after 2 retries");
    memset(error.what, 'a', sizeof error.what - 1);
    stk_retry_add_note(&error, 3);
    T_EQ("cut", strlen(error.what), sizeof error.what - 1);
    stk_retry_add_note(NULL, 3);
}

int main(void)
{
    test_kinds();
    test_waits();
    test_words();
    return t_finish();
}
