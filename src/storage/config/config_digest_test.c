/* Goal: the digest changes with each variable that selects a store or an identity, and with no
 * other. Method: variables set and unset, one at a time. */
#include "storage/config/config_digest.h"

#include "test/t.h"

#include <stdlib.h>
#include <string.h>

static void digest(uint8_t digest_out[32])
{
    struct stk_sha256 sha;

    stk_sha256_init(&sha);
    stk_config_digest_add(&sha);
    stk_sha256_done(&sha, digest_out);
}

int main(void)
{
    static const struct row {
        const char *name;
        bool counts;
    } rows[] = {{"AWS_PROFILE", true},        {"AWS_ENDPOINT_URL", true},
                {"AZURE_CLIENT_ID", true},    {"GOOGLE_APPLICATION_CREDENTIALS", true},
                {"HF_TOKEN", true},           {"XDG_CACHE_HOME", true},
                {"AWS_SESSION_TOKEN", false}, {"PATH_OF_NOTHING", false}};
    uint8_t before[32], after[32];

    T_EACH(row, row, rows)
    {
        unsetenv(row->name);
        digest(before);
        setenv(row->name, "x", 1);
        digest(after);
        T_EQ(row->name, memcmp(before, after, 32) != 0, row->counts);
        setenv(row->name, "", 1);
        digest(after);
        T_EQ("empty is not unset", memcmp(before, after, 32) != 0, row->counts);
        unsetenv(row->name);
        digest(after);
        T_EQ("as before", memcmp(before, after, 32), 0);
    }
    return t_finish();
}
