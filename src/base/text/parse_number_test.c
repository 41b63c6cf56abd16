/* Goal: numbers in text are read alike in every locale, tiny ones too, and overflow is reported.
 * Method: tables; all again with a locale whose decimal point is a comma, if one is installed. */
#include "base/text/parse_number.h"
#include "test/t.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct int_row {
    const char *text;
    bool good;
    int64_t number;
    size_t used;
} int_rows[] = {
    {"5", true, 5, 1},
    {" \t\n-7 x", true, -7, 5},
    {"+12", true, 12, 3},
    {"007", true, 7, 3},
    {"9223372036854775807", true, INT64_MAX, 19},
    {"-9223372036854775808", true, INT64_MIN, 20},
    {"9223372036854775808", false, 0, 19},
    {"-9223372036854775809", false, 0, 20},
    {"99999999999999999999999", false, 0, 23},
    {"10.0", true, 10, 2},
    {"", false, 0, 0},
    {"-", false, 0, 0},
    {"x", false, 0, 0},
};

static const struct natural_row {
    const char *text;
    bool good;
    uint64_t number;
    size_t used;
} natural_rows[] = {
    {"0", true, 0, 1},
    {" +9223372036854775808\n", true, (uint64_t)INT64_MAX + 1, 21},
    {"18446744073709551615", true, UINT64_MAX, 20},
    {"18446744073709551616", false, 0, 20},
    {"-0", true, 0, 2},
    {"-1", false, 0, 2},
    {"x", false, 0, 0},
};

static const struct real_row {
    const char *text;
    bool good;
    double number;
    size_t used;
} real_rows[] = {
    {"0.5", true, 0.5, 3},
    {" -2.25e3\n", true, -2250, 8},
    {"1e-310", true, 1e-310, 6},
    {"4.9e-324", true, 4.9e-324, 8},
    {"1e-400", true, 0, 6},
    {"1.7976931348623157e308", true, 1.7976931348623157e308, 22},
    {"1e309", false, 0, 5},
    {"-1e999", false, 0, 6},
    {"inf", true, (double)INFINITY, 3},
    {"0x1p-2", true, 0.25, 6},
    {"0,5", true, 0, 1},
    {"1_000", true, 1, 1},
    {"", false, 0, 0},
    {".", false, 0, 0},
};

static const struct size_row {
    const char *text;
    bool good, without_unit; /* without_unit: good without units, too */
    uint64_t size;
} size_rows[] = {
    {"0", true, true, 0},
    {"18446744073709551615", true, true, UINT64_MAX},
    {"18446744073709551616", false, false, 0},
    {"4K", true, false, 4096},
    {"4kB", true, false, 4096},
    {"4MiB", true, false, 4 << 20},
    {"1g", true, false, 1 << 30},
    {"16777215T", true, false, 16777215ull << 40},
    {"16777216T", false, false, 0},
    {"4B", false, false, 0},
    {"4 MiB", false, false, 0},
    {"4MiBs", false, false, 0},
    {"4.5G", false, false, 0},
    {"-1", false, false, 0},
    {" 1", false, false, 0},
    {"", false, false, 0},
    {"K", false, false, 0},
};

static void test_sizes(void)
{
    T_EACH(size_row, row, size_rows)
    {
        uint64_t size = 0;

        T_EQ(row->text, stk_parse_size(row->text, true, &size), row->good);
        T_TRUE(row->text, size == row->size);
        T_EQ(row->text, stk_parse_size(row->text, false, &size), row->without_unit);
    }
}

static void test_numbers(void)
{
    T_EACH(int_row, row, int_rows)
    {
        const char *end;
        int64_t number;

        T_EQ(row->text, stk_parse_int64(row->text, &end, &number), row->good);
        T_EQ(row->text, end - row->text, (long long)row->used);
        T_TRUE(row->text, !row->good || number == row->number);
    }
    T_EACH(natural_row, row, natural_rows)
    {
        const char *end;
        uint64_t number;

        T_EQ(row->text, stk_parse_uint64(row->text, &end, &number), row->good);
        T_EQ(row->text, end - row->text, (long long)row->used);
        T_TRUE(row->text, !row->good || number == row->number);
    }
    T_EACH(real_row, row, real_rows)
    {
        const char *end;
        double number;

        T_EQ(row->text, stk_parse_double(row->text, &end, &number), row->good);
        T_EQ(row->text, end - row->text, (long long)row->used);
        T_TRUE(row->text, !row->good || memcmp(&number, &row->number, sizeof number) == 0);
    }
}

/* Written with a point, and read again, in each locale. */
static void test_format(void)
{
    static const struct {
        double number;
        int digits;
        const char *text;
    } rows[] = {{0.5, 15, "0.5"},
                {-1e300, 15, "-1e+300"},
                {1e-310, 3, "1e-310"},
                {3, 17, "3"},
                {0.1, 17, "0.10000000000000001"}};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        char text[32];
        const char *end;
        double again;

        stk_format_double(text, sizeof text, rows[i].digits, rows[i].number);
        T_STR("format", text, rows[i].text);
        T_TRUE("format", stk_parse_double(text, &end, &again) && again == rows[i].number);
    }
}

int main(void)
{
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8"};
    static const char space[] = " \n\t", rest[] = " x";

    char folder[] = "/tmp/stoker-locale-XXXXXX", command[160];

    if (mkdtemp(folder)) { /* few systems have de_DE, but most can make it */
        snprintf(command, sizeof command,
                 "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
        if (system(command) == 0) {
            setenv("LOCPATH", folder, 1);
        }
    }
    test_sizes();
    test_numbers();
    test_format();
    for (size_t i = 0; i < STK_COUNT(locales); i++) {
        if (setlocale(LC_ALL, locales[i])) {
            test_numbers();
            test_format();
        }
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    T_EQ("removed", system(command), 0);
    T_TRUE("space", stk_parse_is_end(space, space + 3));
    T_TRUE("a NUL in it", !stk_parse_is_end(space, space + 4));
    T_TRUE("more", !stk_parse_is_end(rest, rest + 2));
    return t_finish();
}
