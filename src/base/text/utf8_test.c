/* Goal: UTF-8 is accepted; other bytes are refused at the first bad byte.
 * Method: rows; every code point, encoded, alone and after text, complete and truncated. */
#include "base/text/utf8.h"
#include "test/t.h"

#include <string.h>

static const struct row {
    const char *text;
    int64_t bad; /* -1: good */
} rows[] = {
    {"", -1},
    {"plain text of ASCII", -1},
    {"12345678ü", -1},
    {"\xf4\x8f\xbf\xbf", -1},
    {"a\x80", 1},
    {"\xc0\x80", 0},
    {"\xe0\x9f\xbf", 0},
    {"\xed\xa0\x80", 0},
    {"\xf4\x90\x80\x80", 0},
    {"1234567\xc3", 7},
    {"\xf5\x80\x80\x80", 0},
    {"\xe2\x82", 0},
    {"12345678\xff", 8},
    {"\xe0\xa0\x80\xf0\x90\x80\x80", -1},
    {"\xf0\x8f\xbf\xbf", 0},
    {"\xed\x9f\xbf\xee\x80\x80", -1},
    {"\xc2\x20", 0},
    {"\xe2\x82\x20", 0},
    {"\xf0\x90\x80\x20", 0},
};

static void test_rows(void)
{
    T_EACH(row, row, rows)
    {
        struct stk_view text = {(const uint8_t *)row->text, strlen(row->text)};
        uint64_t bad = 0;
        bool good = stk_utf8_check(text, &bad);

        T_EQ(row->text, good ? -1 : (int64_t)bad, row->bad);
        T_EQ(row->text, stk_utf8_check(text, NULL), good);
    }
}

/* Encodes a code point by the bits of RFC 3629, whether it is valid or not. */
static size_t encode(uint32_t code, uint8_t bytes[4])
{
    size_t count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t firsts[] = {0, 0, 0xc0, 0xe0, 0xf0};

    for (size_t i = count; i-- > 1; code >>= 6) {
        bytes[i] = (uint8_t)(0x80 | (code & 0x3f));
    }
    bytes[0] = (uint8_t)(firsts[count] | code);
    return count;
}

static void test_code_points(void)
{
    uint32_t wrong = 0;

    for (uint32_t code = 0; code < 0x140000; code++) {
        bool good = code < 0xd800 || (code >= 0xe000 && code <= 0x10ffff);
        uint8_t text[16] = "ASCII...";
        size_t count = encode(code, text + 8);
        uint64_t bad = 99;

        wrong += stk_utf8_character(text + 8, 4) != (good ? count : 0);
        wrong += stk_utf8_character(text + 8, count) != (good ? count : 0);
        wrong += count > 1 && stk_utf8_character(text + 8, count - 1) != 0;
        wrong += stk_utf8_check((struct stk_view){text, 8 + count}, &bad) != good;
        wrong += bad != (good ? 99 : 8);
    }
    T_EQ("code points", wrong, 0);
}

int main(void)
{
    test_rows();
    test_code_points();
    return t_finish();
}
