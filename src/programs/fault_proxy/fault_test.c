/* Goal: heads, bodies and scripts have one meaning for every reader, or are refused; rules apply in
 * their turn, the same way again for the same seed; answers and edited heads are as requested.
 * Method: rows for fault_wire.c, fault_script.c, fault_answer.c and fault_folder.c.
 * python/tests/test_fault_proxy.py tests fault_connection.c, fault_transfer.c, fault_proxy.c and
 * fault_main.c, as clients see them. */
#include "programs/fault_proxy/fault_folder.h"

#include "base/mem.h"
#include "base/text/text_match.h"
#include "test/t.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- heads ---- */

struct head_row {
    const char *name, *text;
    bool request;
    int status;       /* of parse, or of body_of if that is below 0 */
    uint32_t framing; /* enum stk_fault_framing */
};

static const struct head_row heads[] = {
    {"request", "GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n", true, 1, STK_FAULT_EMPTY},
    {"length", "PUT /a HTTP/1.1\r\nContent-Length:  5 \r\n\r\n", true, 1, STK_FAULT_LENGTH},
    {"chunks", "PUT /a HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n", true, 1, STK_FAULT_CHUNKED},
    {"answer", "HTTP/1.1 200 OK\r\n\r\n", false, 1, STK_FAULT_UNTIL_CLOSE},
    {"no reason", "HTTP/1.0 200\r\n\r\n", false, 1, STK_FAULT_UNTIL_CLOSE},
    {"no content", "HTTP/1.1 204 No\r\nContent-Length: 4\r\n\r\n", false, 1, STK_FAULT_EMPTY},
    {"interim", "HTTP/1.1 100 Continue\r\n\r\n", false, 1, STK_FAULT_EMPTY},
    {"more to come", "GET / HTTP/1.1\r\nHost: x\r\n", true, 0, 0},
    {"nothing", "", true, 0, 0},
    {"length twice", "PUT / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", true, -1,
     0},
    {"length and chunks",
     "PUT / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", true, -1, 0},
    {"negative", "PUT / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", true, -1, 0},
    {"huge", "PUT / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", true, -1, 0},
    {"gzip", "PUT / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", true, -1, 0},
    {"blank before the colon", "GET / HTTP/1.1\r\nHost : x\r\n\r\n", true, -1, 0},
    {"folded", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", true, -1, 0},
    {"bare line feed", "GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n", true, -1, 0},
    {"no colon", "GET / HTTP/1.1\r\nHost\r\n\r\n", true, -1, 0},
    {"no path", "GET HTTP/1.1\r\n\r\n", true, -1, 0},
    {"absolute", "GET http://x/ HTTP/1.1\r\n\r\n", true, -1, 0},
    {"HTTP/2", "GET / HTTP/2.0\r\n\r\n", true, -1, 0},
    {"two digits", "HTTP/1.1 20 OK\r\n\r\n", false, -1, 0},
    {"four digits", "HTTP/1.1 2000 OK\r\n\r\n", false, -1, 0},
    {"TLS", "\x16\x03\x01\x02\r\n\r\n", true, -1, 0},
};

static void test_heads(void)
{
    struct stk_fault_head head;
    struct stk_fault_body body;

    T_EACH(head_row, row, heads)
    {
        struct stoker_error error = {0};
        int status = stk_fault_head_parse(&head, stk_view_of_text(row->text), row->request, &error);
        if (status == 1) {
            T_EQ(row->name, head.bytes, strlen(row->text));
            int framed = stk_fault_body_init(&body, &head, row->request, false, &error);
            status = framed < 0 ? framed : 1;
        }
        T_EQ(row->name, status < 0 ? -1 : status, row->status);
        if (row->status == 1) {
            T_EQ(row->name, body.framing, row->framing);
        } else if (row->status < 0) {
            T_ERROR(row->name, &error);
        }
        /* Any shorter piece of a good head is not yet one. */
        for (size_t n = 0; row->status == 1 && n < strlen(row->text); n++) {
            struct stk_view part = {(const uint8_t *)row->text, n};
            T_EQ(row->name, stk_fault_head_parse(&head, part, row->request, NULL), 0);
        }
    }
    stk_fault_head_parse(&head, stk_view_of_text(heads[1].text), true, NULL);
    T_TRUE("header", stk_fault_view_equals(stk_fault_header(&head, "CONTENT-length"), "5"));
    T_TRUE("header", stk_fault_header(&head, "Content").data == NULL);
    T_TRUE("method",
           stk_fault_view_equals(head.method, "PUT") && stk_fault_view_equals(head.target, "/a"));
}

static void test_long_head(void)
{
    static char text[STK_FAULT_HEAD_BYTES_MAX + 100];
    struct stk_fault_head head;
    size_t bytes;

    memset(text, 'a', sizeof text);
    T_EQ("no end",
         stk_fault_head_parse(&head, (struct stk_view){(uint8_t *)text, sizeof text}, true, NULL) <
             0,
         1);
    bytes = (size_t)snprintf(text, sizeof text, "GET / HTTP/1.1\r\n");
    for (unsigned i = 0; i <= STK_FAULT_HEADERS_MAX; i++) {
        bytes += (size_t)snprintf(text + bytes, sizeof text - bytes, "A: b\r\n");
    }
    snprintf(text + bytes, sizeof text - bytes, "\r\n");
    T_EQ("many headers", stk_fault_head_parse(&head, stk_view_of_text(text), true, NULL) < 0, 1);
}

/* ---- bodies ---- */

struct body_row {
    const char *name, *text;
    int64_t bytes; /* of the body; -1: refused */
    bool done;
};

static const struct body_row bodies[] = {
    {"one chunk", "5\r\nhello\r\n0\r\n\r\nGET", 15, true},
    {"two chunks", "A;x=y\r\n0123456789\r\n1\r\na\r\n0\r\n\r\n", 30, true},
    {"trailer", "0\r\nX: y\r\nZ: w\r\n\r\n", 17, true},
    {"not the end", "5\r\nhel", 6, false},
    {"no size", "\r\n\r\n", -1, false},
    {"a minus", "-5\r\nhello\r\n", -1, false},
    {"size without an end", "1234567812345678\r\n", -1, false},
    {"too much data", "1\r\nab\r\n0\r\n\r\n", -1, false},
    {"line feeds only", "1\na\n0\n\n", -1, false},
};

static void test_bodies(void)
{
    T_EACH(body_row, row, bodies)
    {
        struct stoker_error error = {0};
        struct stk_fault_body body = {.framing = STK_FAULT_CHUNKED};
        struct stk_fault_body bitwise = {.framing = STK_FAULT_CHUNKED};
        int64_t bytes = stk_fault_body_consume(&body, stk_view_of_text(row->text), &error), sum = 0,
                one = 1;
        T_EQ(row->name, bytes < 0 ? -1 : bytes, row->bytes);
        T_EQ(row->name, body.done, row->done);
        for (size_t i = 0; row->text[i] && one == 1 && !bitwise.done; i++) {
            struct stk_view byte = {(const uint8_t *)row->text + i, 1};
            one = stk_fault_body_consume(&bitwise, byte, NULL);
            sum += one;
        }
        T_EQ(row->name, one < 0 ? -1 : sum, row->bytes);
    }
}

/* ---- scripts ---- */

static const struct {
    const char *name, *text;
    bool good;
} scripts[] = {
    {"empty", "{\"rules\":[]}", true},
    {"one", "{\"seed\":3,\"rules\":[{\"fault\":\"reset\",\"at\":-1}]}", true},
    {"a seed of its own", "{\"rules\":[{\"fault\":\"reset\",\"seed\":1}]}", true},
    {"seed 0", "{\"rules\":[{\"fault\":\"reset\",\"seed\":0}]}", false},
    {"a share", "{\"rules\":[{\"fault\":\"status\",\"probability\":0.5,\"status\":429}]}", true},
    {"headers", "{\"rules\":[{\"fault\":\"pass\",\"headers\":{\"A\":\"b\"}}]}", true},
    {"no rules", "{}", false},
    {"a list", "[]", false},
    {"other keys", "{\"rules\":[],\"rule\":1}", false},
    {"no fault", "{\"rules\":[{\"nth\":1}]}", false},
    {"unknown fault", "{\"rules\":[{\"fault\":\"resett\"}]}", false},
    {"unknown key", "{\"rules\":[{\"fault\":\"reset\",\"byte\":1}]}", false},
    {"key twice", "{\"rules\":[{\"fault\":\"reset\",\"fault\":\"stall\"}]}", false},
    {"nth 0", "{\"rules\":[{\"fault\":\"reset\",\"nth\":0}]}", false},
    {"share above 1", "{\"rules\":[{\"fault\":\"reset\",\"probability\":1.1}]}", false},
    {"status 99", "{\"rules\":[{\"fault\":\"status\",\"status\":99}]}", false},
    {"text for a number", "{\"rules\":[{\"fault\":\"reset\",\"at\":\"1\"}]}", false},
    {"split header", "{\"rules\":[{\"fault\":\"pass\",\"headers\":{\"A\":\"b\\r\\nC: d\"}}]}",
     false},
    {"split value", "{\"rules\":[{\"fault\":\"redirect\",\"value\":\"a\\nb\"}]}", false},
    {"relative", "{\"rules\":[{\"fault\":\"swap\",\"with\":\"b\"}]}", false},
};

static void test_scripts(void)
{
    for (size_t i = 0; i < STK_COUNT(scripts); i++) {
        struct stk_fault_script script;
        struct stoker_error error = {0};
        int status = stk_fault_script_open(&script, stk_view_of_text(scripts[i].text), &error);
        T_EQ(scripts[i].name, status == 0, scripts[i].good);
        if (status < 0) {
            T_ERROR(scripts[i].name, &error);
        }
        stk_fault_script_deinit(&script);
    }
}

static const struct {
    const char *name, *rule; /* keys of a rule */
    const char *turns;       /* for requests 1, 2 ...: x: it fires */
} turns[] = {
    {"always", "\"method\":\"GET\"", "xxxxxx"},
    {"third", "\"nth\":3", "..x..."},
    {"from the third", "\"from\":3", "..xxxx"},
    {"every second", "\"every\":2", ".x.x.x"},
    {"twice", "\"count\":2", "xx...."},
    {"other method", "\"method\":\"PUT\"", "......"},
    {"path", "\"path\":\"/b/*.jpg\"", "xxxxxx"},
    {"path with two stars", "\"path\":\"*b*k?y*\"", "xxxxxx"},
    {"other path", "\"path\":\"/b/*.jp\"", "......"},
    {"query", "\"query\":\"*uploadId=*\"", "xxxxxx"},
    {"other query", "\"query\":\"list*\"", "......"},
    {"range", "\"range\":true", "......"},
    {"no range", "\"range\":false", "xxxxxx"},
    {"later", "\"after_ms\":3", "..xxxx"},
    {"at first", "\"until_ms\":3", "xx...."},
    {"never", "\"probability\":0", "......"},
};

static void test_turns(void)
{
    for (size_t i = 0; i < STK_COUNT(turns); i++) {
        struct stk_fault_script script;
        char text[256], got[8] = {0};
        snprintf(text, sizeof text, "{\"rules\":[{\"fault\":\"reset\",%s}]}", turns[i].rule);
        T_EQ(turns[i].name, stk_fault_script_open(&script, stk_view_of_text(text), NULL), 0);
        for (unsigned n = 1; n <= 6; n++) {
            struct stk_fault_request request = {"GET", "/b/key.jpg", "x=1&uploadId=2", false, n};
            got[n - 1] = stk_fault_script_choose(&script, &request) ? 'x' : '.';
        }
        T_STR(turns[i].name, got, turns[i].turns);
        stk_fault_script_deinit(&script);
    }
}

static void test_chance(void)
{
    static const char text[] =
        "{\"seed\":%d,\"rules\":[{\"fault\":\"reset\",\"probability\":0.3}]}";
    struct stk_fault_request request = {"GET", "/", "", false, 0};
    char seen[3][1001] = {{0}};
    int hits[3] = {0};

    for (int run = 0; run < 3; run++) {
        struct stk_fault_script script;
        char filled[128];
        snprintf(filled, sizeof filled, text, run == 2 ? 8 : 7);
        stk_fault_script_open(&script, stk_view_of_text(filled), NULL);
        for (int n = 0; n < 1000; n++) {
            bool hit = stk_fault_script_choose(&script, &request) != NULL;
            seen[run][n] = hit ? 'x' : '.';
            hits[run] += hit;
        }
        stk_fault_script_deinit(&script);
    }
    T_STR("the same seed", seen[1], seen[0]);
    T_TRUE("another seed", strcmp(seen[2], seen[0]) != 0);
    T_TRUE("three of ten", hits[0] > 230 && hits[0] < 370); /* 4.8 sigma; of fixed seeds */
}

/* A rule with a seed of its own has the same effect at any place in the script. */
static void test_own_chance(void)
{
    static const char *const before[] = {"", "{\"fault\":\"stall\",\"path\":\"/other\"},"};
    struct stk_fault_request request = {"GET", "/", "", false, 0};
    char seen[4][65] = {{0}};

    for (int run = 0; run < 4; run++) {
        struct stk_fault_script script;
        char text[256];
        snprintf(text, sizeof text, "{\"rules\":[%s{\"fault\":\"reset\",\"probability\":0.5%s}]}",
                 before[run & 1], run < 2 ? ",\"seed\":1" : "");
        T_EQ(text, stk_fault_script_open(&script, stk_view_of_text(text), NULL), 0);
        for (int n = 0; n < 64; n++) {
            seen[run][n] = stk_fault_script_choose(&script, &request) ? 'x' : '.';
        }
        stk_fault_script_deinit(&script);
    }
    T_STR("of its own", seen[1], seen[0]);
    T_TRUE("by its place", strcmp(seen[3], seen[2]) != 0);
    T_TRUE("its own is no place's", strcmp(seen[0], seen[2]) != 0);
}

/* ---- answers ---- */

static const struct {
    const char *rule, *part; /* text that the answer contains */
} answers[] = {
    {"\"fault\":\"status\",\"retry_after\":7", "HTTP/1.1 503 Slow Down\r\n"},
    {"\"fault\":\"status\",\"retry_after\":7", "Retry-After: 7\r\n"},
    {"\"fault\":\"status\"", "<Code>SlowDown</Code>"},
    {"\"fault\":\"status\",\"status\":403", "<Code>AccessDenied</Code>"},
    {"\"fault\":\"expired\"", "HTTP/1.1 400 Bad Request\r\n"},
    {"\"fault\":\"expired\"", "<Code>ExpiredToken</Code>"},
    {"\"fault\":\"error-body\"", "HTTP/1.1 200 OK\r\n"},
    {"\"fault\":\"error-body\"", "<Code>InternalError</Code>"},
    {"\"fault\":\"redirect\"", "Location: http://169.254.169.254/"},
    {"\"fault\":\"too-skewed\"", "Date: Thu, 01 Jan 1970 01:00:00 GMT\r\n"},
    {"\"fault\":\"answer\",\"body\":\"hello\",\"headers\":{\"A\":\"b\"}",
     "A: b\r\nContent-Length: 5\r\n\r\nhello"},
    {"\"fault\":\"endless-list\"", "<IsTruncated>true</IsTruncated>"},
    {"\"fault\":\"xml-bomb\"", "<!ENTITY e9 "},
    {"\"fault\":\"deep-xml\"", "<a><a><a>"},
    {"\"fault\":\"endless-body\"", "Transfer-Encoding: chunked"},
    {"\"fault\":\"raw\",\"body\":\"PRI * HTTP/2.0\"", "PRI * HTTP/2.0"},
};

static void test_answers(void)
{
    for (size_t i = 0; i < STK_COUNT(answers); i++) {
        struct stk_fault_request request = {"GET", "/bucket", "list-type=2", false, 0};
        struct stk_fault_script script;
        struct stk_fault_answer answer;
        char text[256];
        snprintf(text, sizeof text, "{\"rules\":[{%s}]}", answers[i].rule);
        T_EQ(answers[i].rule, stk_fault_script_open(&script, stk_view_of_text(text), NULL), 0);
        T_TRUE(answers[i].rule, stk_fault_is_answer(script.rules[0].fault));
        T_EQ(answers[i].rule, stk_fault_answer_make(&answer, script.rules, &request, false, 0), 0);
        stk_fault_text_bytes(&answer.text, "", 1);
        T_HAS(answers[i].rule, answer.text.data, answers[i].part);
        stk_fault_answer_deinit(&answer);
        T_EQ(answers[i].rule, stk_fault_answer_make(&answer, script.rules, &request, true, 0), 0);
        T_TRUE("HEAD has no body", script.rules[0].fault == STK_FAULT_ENDLESS_BODY ||
                                       script.rules[0].fault == STK_FAULT_RAW ||
                                       answer.head_bytes == answer.text.bytes);
        stk_fault_answer_deinit(&answer);
        stk_fault_script_deinit(&script);
    }
}

static const char passing[] = "HTTP/1.1 206 Partial Content\r\nDate: now\r\nETag: \"e\"\r\n"
                              "Content-Range: bytes 100-199/1000\r\nContent-Length: 100\r\n"
                              "x-amz-checksum-crc64nvme: BBBBBBBBBBB=\r\nKeep: it\r\n\r\n";

static const struct {
    const char *rule, *part, *absent;
} edits[] = {
    {"\"fault\":\"pass\"", "Content-Range: bytes 100-199/1000\r\n", "no such"},
    {"\"fault\":\"wrong-range\"", "Content-Range: bytes 101-200/1000\r\n", "100-199"},
    {"\"fault\":\"wrong-range\",\"value\":\"bytes 0-99/100\"", "Content-Range: bytes 0-99/100\r\n",
     "100-199"},
    {"\"fault\":\"no-range\"", "HTTP/1.1 200 OK\r\n", "Content-Range"},
    {"\"fault\":\"etag\",\"value\":\"\\\"f\\\"\"", "ETag: \"f\"\r\n", "\"e\""},
    {"\"fault\":\"skew\",\"seconds\":-60", "Date: Wed, 31 Dec 1969 23:59:00 GMT\r\n", "now"},
    {"\"fault\":\"checksum\"", "x-amz-checksum-crc64nvme: ABBBBBBBBBB=\r\n", "BBBBBBBBBBB="},
    {"\"fault\":\"pass\",\"headers\":{\"keep\":\"else\"}", "keep: else\r\n", "Keep: it"},
};

static void test_edits(void)
{
    for (size_t i = 0; i < STK_COUNT(edits); i++) {
        struct stk_fault_script script;
        struct stk_fault_head head;
        struct stk_fault_text out = {0};
        uint32_t status;
        char text[256];
        snprintf(text, sizeof text, "{\"rules\":[{%s}]}", edits[i].rule);
        stk_fault_script_open(&script, stk_view_of_text(text), NULL);
        T_EQ(edits[i].rule, stk_fault_head_parse(&head, stk_view_of_text(passing), false, NULL), 1);
        stk_fault_edit_answer(&out, &head, script.rules, 0, &status);
        stk_fault_text_bytes(&out, "", 1);
        T_HAS(edits[i].rule, out.data, edits[i].part);
        T_TRUE(edits[i].rule, !strstr(out.data, edits[i].absent));
        T_HAS(edits[i].rule, out.data, "\r\n\r\n");
        stk_fault_text_deinit(&out);
        stk_fault_script_deinit(&script);
    }
}

static void test_signed(void)
{
    static const char text[] = "GET / HTTP/1.1\r\nAuthorization: AWS4-HMAC-SHA256 Credential=a/b, "
                               "SignedHeaders=host;if-match;range, Signature=00\r\n\r\n";
    struct stk_fault_head head;

    stk_fault_head_parse(&head, stk_view_of_text(text), true, NULL);
    T_TRUE("first", stk_fault_is_signed(&head, "host"));
    T_TRUE("last", stk_fault_is_signed(&head, "range"));
    T_TRUE("part of a name", !stk_fault_is_signed(&head, "match"));
    T_TRUE("not at all", !stk_fault_is_signed(&head, "signature"));
}

/* ---- the folder ---- */

static const struct {
    const char *name, *request, *part; /* of the head */
    int64_t bytes;                     /* of the body in the file; -1: none */
} requests[] = {
    {"complete", "GET /b/k HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n", 10},
    {"encoded", "GET /b/%6B HTTP/1.1\r\n\r\n", "Content-Length: 10\r\n", 10},
    {"head", "HEAD /b/k HTTP/1.1\r\n\r\n", "Content-Length: 10\r\n", -1},
    {"range", "GET /b/k HTTP/1.1\r\nRange: bytes=2-4\r\n\r\n", "bytes 2-4/10\r\n", 3},
    {"past the end", "GET /b/k HTTP/1.1\r\nRange: bytes=8-99\r\n\r\n", "bytes 8-9/10\r\n", 2},
    {"from", "GET /b/k HTTP/1.1\r\nRange: bytes=8-\r\n\r\n", "bytes 8-9/10\r\n", 2},
    {"last", "GET /b/k HTTP/1.1\r\nRange: bytes=-3\r\n\r\n", "bytes 7-9/10\r\n", 3},
    {"behind", "GET /b/k HTTP/1.1\r\nRange: bytes=10-\r\n\r\n", "HTTP/1.1 416 ", -1},
    {"nonsense", "GET /b/k HTTP/1.1\r\nRange: bytes=4-2\r\n\r\n", "HTTP/1.1 200 OK\r\n", 10},
    {"other object", "GET /b/k HTTP/1.1\r\nIf-Match: \"x\"\r\n\r\n", "HTTP/1.1 412 ", -1},
    {"none", "GET /b/none HTTP/1.1\r\n\r\n", "<Code>NoSuchKey</Code>", -1},
    {"a folder", "GET /b HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ", -1},
    {"above", "GET /../etc/passwd HTTP/1.1\r\n\r\n", "HTTP/1.1 403 ", -1},
    {"above, encoded", "GET /b/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n\r\n", "HTTP/1.1 403 ", -1},
    {"a link out", "GET /b/out HTTP/1.1\r\n\r\n", "HTTP/1.1 403 ", -1},
    {"put", "PUT /b/k HTTP/1.1\r\n\r\n", "HTTP/1.1 405 ", -1},
    {"list", "GET /b?list-type=2 HTTP/1.1\r\n\r\n",
     "<KeyCount>3</KeyCount><IsTruncated>false</IsTruncated><Contents><Key>a&#38;b</Key>", -1},
    {"list a page", "GET /b?list-type=2&max-keys=1&continuation-token=a%26b HTTP/1.1\r\n\r\n",
     "<IsTruncated>true</IsTruncated><NextContinuationToken>k<", -1},
    {"list names", "GET /b?list-type=2&encoding-type=url&prefix=s%26 HTTP/1.1\r\n\r\n",
     "<Name>b</Name><Prefix>s%26</Prefix><KeyCount>0</KeyCount>", -1},
    {"list encoded", "GET /b?list-type=2&encoding-type=url HTTP/1.1\r\n\r\n", "<Key>a%26b</Key>",
     -1},
    {"list folders", "GET /b?list-type=2&delimiter=%2F&prefix=s HTTP/1.1\r\n\r\n",
     "<KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><CommonPrefixes><Prefix>sub/</Prefix>",
     -1},
};

static void put_file(const char *folder, const char *name)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "w");
    T_TRUE(name, file && fwrite("0123456789", 1, 10, file) == 10 && fclose(file) == 0);
}

static void test_folder(void)
{
    char root[64] = "/tmp/stoker-fault-XXXXXX", path[512];
    int folder;

    T_TRUE("root", mkdtemp(root) != NULL);
    snprintf(path, sizeof path, "%s/b", root);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/b/sub", root);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/b/out", root);
    T_EQ("link", symlink("/etc/passwd", path), 0);
    put_file(root, "b/k");
    put_file(root, "b/a&b");
    put_file(root, "b/sub/deep");
    folder = open(root, O_RDONLY | O_DIRECTORY);
    for (size_t i = 0; i < STK_COUNT(requests); i++) {
        struct stk_fault_head head;
        struct stk_fault_answer answer = {0};
        struct stk_fault_folder_body body;
        char method[8], target[256], *mark;
        T_EQ(requests[i].name,
             stk_fault_head_parse(&head, stk_view_of_text(requests[i].request), true, NULL), 1);
        sscanf(requests[i].request, "%7s %255s", method, target);
        mark = strchr(target, '?');
        struct stk_fault_request request = {method, target, mark ? mark + 1 : "", false, 0};
        if (mark) {
            *mark = 0;
        }
        T_EQ(requests[i].name, stk_fault_folder_answer(&answer, &body, folder, &head, &request), 0);
        stk_fault_text_bytes(&answer.text, "", 1);
        T_HAS(requests[i].name, answer.text.data, requests[i].part);
        T_EQ(requests[i].name, body.file >= 0 ? (int64_t)body.bytes : -1, requests[i].bytes);
        if (body.file >= 0) {
            close(body.file);
        }
        stk_fault_answer_deinit(&answer);
    }
    close(folder);
    static const char *const made[] = {"b/k", "b/a&b", "b/sub/deep", "b/out"};
    for (size_t i = 0; i < STK_COUNT(made); i++) {
        snprintf(path, sizeof path, "%s/%s", root, made[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/b/sub", root);
    rmdir(path);
    snprintf(path, sizeof path, "%s/b", root);
    rmdir(path);
    rmdir(root);
}

int main(void)
{
    test_heads();
    test_long_head();
    test_bodies();
    test_scripts();
    test_turns();
    test_chance();
    test_own_chance();
    test_answers();
    test_edits();
    test_signed();
    test_folder();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
