/* Goal: each variable that requests unsigned access, in credentials.c, applies to one service only.
 * Method: each variable set to yes and to no, for every service. */
#include "storage/credentials/credentials.h"

#include "test/t.h"

#include <stdlib.h>

static const struct wish {
    const char *name;
    uint32_t service;
} wishes[] = {
    {"AWS_NO_SIGN_REQUEST", STK_CREDS_AWS},
    {"GS_NO_SIGN_REQUEST", STK_CREDS_GOOGLE},
    {"AZURE_NO_SIGN_REQUEST", STK_CREDS_AZURE},
};

static void test_unsigned(void)
{
    T_EACH(wish, row, wishes)
    {
        for (uint32_t service = STK_CREDS_AWS; service <= STK_CREDS_S3_EXPRESS; service++) {
            setenv(row->name, "YES", 1);
            T_EQ(row->name, stk_credentials_is_unsigned(service), service == row->service);
            setenv(row->name, "no", 1);
            T_EQ(row->name, stk_credentials_is_unsigned(service), false);
            unsetenv(row->name);
            T_EQ(row->name, stk_credentials_is_unsigned(service), false);
        }
    }
}

int main(void)
{
    T_EACH(wish, row, wishes)
    {
        unsetenv(row->name);
    }
    test_unsigned();
    return t_finish();
}
