/* Goal: a pickle of known opcodes and globals becomes values; others are refused by name, damaged
 * ones with their place; no read goes behind the bytes.
 * Method: rows of pickles; each also cut at every byte, in memory of exactly that size (for ASan);
 * values, keys and sizes of one. Covers pickle.c and pickle_globals.c; pickle_fuzz.c is the fuzz
 * target. */
#include "checkpoint/pickle/pickle.h"

#include "base/mem.h"
#include "test/t.h"

#include <string.h>

static void test_pickles(void)
{
    static const struct {
        const char *name, *bytes;
        size_t count;
        int status;
        const char *where;
    } rows[] = {
        {"number", "\x80\x02K\x05.", 5, 0, NULL},
        {"global", "cos\nsystem\n.", 12, STOKER_ERROR_UNSUPPORTED, "os.system"},
        {"stack global", "\x8c\x02os\x8c\x06system\x93.", 14, STOKER_ERROR_UNSUPPORTED,
         "os.system"},
        {"opcode", "(lp0\n.", 6, STOKER_ERROR_UNSUPPORTED, "PUT (0x70)"},
        {"set", "\x8f.", 2, STOKER_ERROR_UNSUPPORTED, "EMPTY_SET"},
        {"protocol", "\x80\x09.", 3, STOKER_ERROR_UNSUPPORTED, "protocol 9"},
        {"no value", ".", 1, STOKER_ERROR_FORMAT, "byte 0"},
        {"end", "K", 1, STOKER_ERROR_FORMAT, "byte 0"},
        {"memo", "h\x07.", 3, STOKER_ERROR_FORMAT, "byte 0"},
        {"large memo", "Nr\xff\xff\xff\xff.", 7, STOKER_ERROR_FORMAT, "byte 1"},
        {"long text", "X\xff\xff\xff\xff.", 6, STOKER_ERROR_FORMAT, "byte 0"},
        {"mark", "(.", 2, STOKER_ERROR_FORMAT, "byte 1"},
        {"no mark", "Nt.", 3, STOKER_ERROR_FORMAT, "byte 1"},
        {"odd dict", "}(Nu.", 5, STOKER_ERROR_FORMAT, "byte 3"},
        {"call of a number", "K\x01)R.", 5, STOKER_ERROR_FORMAT, "byte 3"},
        {"large integer", "\x8a\x09\1\1\1\1\1\1\1\1\1.", 12, STOKER_ERROR_UNSUPPORTED, "byte 0"},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_pickle pickle = {0};
        struct stoker_error error = {0};
        int status = stk_pickle_parse(
            &pickle, (struct stk_view){(const uint8_t *)rows[i].bytes, rows[i].count}, &error);

        T_EQ(rows[i].name, status, rows[i].status);
        if (status < 0) {
            T_HAS(rows[i].name, error.where, rows[i].where);
        }
        stk_pickle_deinit(&pickle);
    }
}

/* {"a": 7, "b": (2, 3)}, cut at every byte. */
static void test_values(void)
{
    static const char text[] = "}(X\1\0\0\0aK\7X\1\0\0\0bK\2K\3\x86u.";
    size_t bytes = sizeof text - 1;

    for (size_t cut = 0; cut <= bytes; cut++) {
        uint8_t *exact = stk_alloc(bytes - cut + 1, 1);
        struct stk_pickle pickle = {0};
        struct stoker_error error = {0};
        int status;

        memcpy(exact + 1, text, bytes - cut);
        status = stk_pickle_parse(&pickle, (struct stk_view){exact + 1, bytes - cut}, &error);
        T_EQ("status", status, cut == 0 ? 0 : STOKER_ERROR_FORMAT);
        if (status == 0) {
            const struct stk_pickle_value *dict = stk_pickle_at(&pickle, pickle.root);
            const struct stk_pickle_value *number = stk_pickle_get(&pickle, dict, "a");
            const struct stk_pickle_value *pair = stk_pickle_get(&pickle, dict, "b");
            uint64_t numbers[2] = {0};
            uint32_t count = 0;

            T_EQ("kind", dict->kind, STK_PICKLE_DICT);
            T_TRUE("number", number && number->kind == STK_PICKLE_INTEGER && number->integer == 7);
            T_TRUE("no key", !stk_pickle_get(&pickle, dict, "c"));
            T_TRUE("pair", pair && stk_pickle_numbers(&pickle, pair, numbers, 2, &count));
            T_TRUE("numbers", count == 2 && numbers[0] == 2 && numbers[1] == 3);
            T_TRUE("too many", !stk_pickle_numbers(&pickle, pair, numbers, 1, &count));
            T_TRUE("item", stk_pickle_item(&pickle, pair, 1)->integer == 3);
            T_TRUE("no item", !stk_pickle_item(&pickle, pair, 2));
        } else {
            T_ERROR("cut", &error);
        }
        stk_pickle_deinit(&pickle);
        stk_free(exact);
    }
}

static void test_globals(void)
{
    static const struct {
        const char *module, *name;
        uint32_t kind; /* 0: unknown */
    } rows[] = {
        {"collections", "OrderedDict", STK_PICKLE_ORDERED_DICT},
        {"torch._utils", "_rebuild_tensor_v2", STK_PICKLE_REBUILD_TENSOR},
        {"torch", "Size", STK_PICKLE_SIZE},
        {"torch", "Siz", 0},
        {"torc", "Size", 0},
        {"os", "system", 0},
        {"builtins", "eval", 0},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        const struct stk_pickle_global *global = stk_pickle_find_global(
            (struct stk_view){(const uint8_t *)rows[i].module, strlen(rows[i].module)},
            (struct stk_view){(const uint8_t *)rows[i].name, strlen(rows[i].name)});

        T_EQ(rows[i].name, global ? global->kind : 0, rows[i].kind);
    }
}

int main(void)
{
    test_pickles();
    test_values();
    test_globals();
    T_EQ("memory", stk_mem_alive(), 0);
    return t_finish();
}
