/* Goal: the indexes of wds2idx, Energon and widsindex are read as they were meant; a contradiction
 * is refused with its place.
 * Method: texts that the tools themselves wrote (wds2idx of DALI 2.4; Energon's rule at bef8be2 on
 * Python's tarfile; widsindex before webdataset removed it), of tars made by Python's tarfile, and
 * changes of each, in tables; every truncation; headers of real shape, compared with a tar's. */
#include "index/foreign/dali_index.h"

#include "base/text/text_match.h"
#include "index/foreign/energon_index.h"
#include "index/foreign/header_check.h"
#include "index/foreign/wids_index.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- DALI ---- */

/* By wds2idx, of GNU tars and of one with PAX headers (pax). */
static const char plain[] = "v1.2 3\n"
                            "jpg 512 700 a/0.jpg cls 2048 1 a/0.cls\n"
                            "jpg 3072 512 a/1.jpg cls 4096 1 a/1.cls\n"
                            "JPG 5120 0 a/2.JPG\n";
static const char pax[] = "v1.2 2\n"
                          "jpg 1536 700 s0.jpg cls 4096 1 s0.cls\n"
                          "jpg 6144 512 s1.jpg json 8192 2 s1.json\n";
static const char odd[] = "v1.2 2\n"
                          "README 2560 10 README\n"
                          "x.jpg 3584 1 d/0.x.jpg cls 4608 1 d/0.cls\n";
static const char spaces[] = "v1.2 1\njpg 512 1 a b.jpg cls 1536 1 a b.cls\n";

static const struct dali_row {
    const char *name, *text;
    int status; /* 0, or the error that ends it */
    uint32_t members;
    uint64_t end;
} dali_rows[] = {
    {"plain", plain, 0, 5, 5120},
    {"pax", pax, 0, 4, 8704},
    {"odd names", odd, 0, 3, 5120},
    {"names with spaces", spaces, STOKER_ERROR_CORRUPT, 0, 0},
    {"no samples", "v1.2 0\n", 0, 0, 0},
    {"empty", "", STOKER_ERROR_FORMAT, 0, 0},
    {"another text", "hello world\n", STOKER_ERROR_FORMAT, 0, 0},
    {"TFRecord's idx", "0 152\n152 167\n", STOKER_ERROR_FORMAT, 0, 0},
    {"without names", "v1.1 1\njpg 512 700\n", STOKER_ERROR_UNSUPPORTED, 0, 0},
    {"a later version", "v1.3 1\njpg 512 700 a.jpg\n", STOKER_ERROR_UNSUPPORTED, 0, 0},
    {"no count", "v1.2\n", STOKER_ERROR_FORMAT, 0, 0},
    {"count of too many digits", "v1.2 99999999999999999999\n", STOKER_ERROR_FORMAT, 0, 0},
    {"more samples said", "v1.2 2\njpg 512 1 a.jpg\n", STOKER_ERROR_CORRUPT, 1, 0},
    {"fewer samples said", "v1.2 1\njpg 512 1 a.jpg\njpg 1536 1 b.jpg\n", STOKER_ERROR_CORRUPT, 1,
     0},
    {"no end of line", "v1.2 1\njpg 512 1 a.jpg", STOKER_ERROR_CORRUPT, 0, 0},
    {"an empty line", "v1.2 1\n\n", STOKER_ERROR_CORRUPT, 0, 0},
    {"two spaces", "v1.2 1\njpg  512 1 a.jpg\n", STOKER_ERROR_CORRUPT, 0, 0},
    {"a sign", "v1.2 1\njpg +512 1 a.jpg\n", STOKER_ERROR_CORRUPT, 0, 0},
    {"a leading zero", "v1.2 1\njpg 0512 1 a.jpg\n", STOKER_ERROR_CORRUPT, 0, 0},
    {"another extension", "v1.2 1\npng 512 1 a.jpg\n", STOKER_ERROR_CORRUPT, 0, 0},
    {"offset inside of a block", "v1.2 1\njpg 513 1 a.jpg\n", STOKER_ERROR_CORRUPT, 0, 0},
    {"no room for a header", "v1.2 1\njpg 0 1 a.jpg\n", STOKER_ERROR_CORRUPT, 0, 0},
    {"one over the other", "v1.2 1\njpg 512 600 a.jpg cls 1536 1 a.cls\n", STOKER_ERROR_CORRUPT, 1,
     0},
    {"a huge size", "v1.2 1\njpg 512 999999999999999999 a.jpg\n", STOKER_ERROR_CORRUPT, 0, 0},
    {"escapes", "v1.2 1\njpg 512 1 \\303\\244.jpg\n", STOKER_ERROR_UNSUPPORTED, 0, 0},
    {"a long name",
     "v1.2 1\njpg 512 1 "
     "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
     "nnnn"
     ".jpg\n",
     STOKER_ERROR_UNSUPPORTED, 0, 0},
};

/* All members; the status that ends it. */
static int read_dali(struct stk_view text, uint32_t *members, uint64_t *end,
                     struct stoker_error *error)
{
    struct stk_dali_index dali;
    struct stk_dali_index_member member;
    int more = stk_dali_index_open(&dali, text, error);

    *members = 0;
    for (more = more < 0 ? more : 1; more > 0;) {
        more = stk_dali_index_next(&dali, &member, error);
        *members += more > 0;
    }
    *end = dali.end;
    return more;
}

static void test_dali(void)
{
    struct stoker_error error;
    struct stk_dali_index dali;
    struct stk_dali_index_member member;
    uint32_t members;
    uint64_t end;

    T_EACH(dali_row, row, dali_rows)
    {
        error = (struct stoker_error){0};
        T_EQ(row->name, read_dali(stk_view_of_text(row->text), &members, &end, &error),
             row->status);
        T_EQ(row->name, members, row->members);
        if (row->status == 0) {
            T_EQ(row->name, end, row->end);
        } else {
            T_ERROR(row->name, &error);
            T_TRUE(row->name, error.offset <= strlen(row->text));
        }
    }
    T_EQ("open", stk_dali_index_open(&dali, stk_view_of_text(pax), &error), 0);
    T_EQ("next", stk_dali_index_next(&dali, &member, &error), 1);
    T_TRUE("name", member.name.bytes == 6 && memcmp(member.name.data, "s0.jpg", 6) == 0);
    T_TRUE("first", member.offset == 1536 && member.bytes == 700 && member.previous_end == 0);
    T_EQ("next", stk_dali_index_next(&dali, &member, &error), 1);
    T_TRUE("second", member.offset == 4096 && member.bytes == 1 && member.previous_end == 2560);
    /* Every truncation is detected, except one that leaves out nothing. */
    for (size_t bytes = 0; bytes < sizeof plain - 1; bytes++) {
        T_TRUE("cut", read_dali((struct stk_view){(const uint8_t *)plain, bytes}, &members, &end,
                                &error) < 0);
    }
}

/* ---- Energon ---- */

static void test_energon(void)
{
    static const struct energon_row {
        const char *name;
        uint64_t offsets[4];
        size_t bytes;
        uint64_t tar_bytes;
        int status;
    } rows[] = {
        {"pax", {0, 4608, 8704}, 24, 10240, 0},
        {"odd", {512, 3072, 5120, 9216}, 32, 10240, 0},
        {"no samples", {0}, 8, 10240, 0},
        {"to the end", {0, 1024}, 16, 1024, 0},
        {"empty", {0}, 0, 10240, STOKER_ERROR_FORMAT},
        {"half an offset", {0, 4608}, 12, 10240, STOKER_ERROR_FORMAT},
        {"inside of a block", {0, 4600, 8704}, 24, 10240, STOKER_ERROR_CORRUPT},
        {"back", {0, 4608, 4096}, 24, 10240, STOKER_ERROR_CORRUPT},
        {"twice", {0, 4608, 4608}, 24, 10240, STOKER_ERROR_CORRUPT},
        {"behind the tar", {0, 4608, 8704}, 24, 8192, STOKER_ERROR_CORRUPT},
        {"far behind", {0, UINT64_MAX - 511}, 16, 8192, STOKER_ERROR_CORRUPT},
    };

    T_EACH(energon_row, row, rows)
    {
        struct stk_view text = {(const uint8_t *)row->offsets, row->bytes}; /* little end first */
        struct stoker_error error = {0};
        struct stk_energon_index energon;
        int status = stk_energon_index_open(&energon, text, row->tar_bytes, &error);

        T_EQ(row->name, status, row->status);
        if (status < 0) {
            T_ERROR(row->name, &error);
            continue;
        }
        T_EQ(row->name, energon.samples, row->bytes / 8 - 1);
        for (uint64_t i = 0; i <= energon.samples; i++) {
            T_EQ(row->name, stk_energon_index_offset(&energon, i), row->offsets[i]);
        }
    }
}

/* ---- wids ---- */

/* By widsindex create pax.tar plain-000.tar. */
static const char shards[] = "{\n"
                             "  \"__kind__\": \"wids-shard-index-v1\",\n"
                             "  \"wids_version\": 1,\n"
                             "  \"shardlist\": [\n"
                             "    {\n"
                             "      \"url\": \"pax.tar\",\n"
                             "      \"md5sum\": \"9e22d37cb5c838672a1a97034bb7503d\",\n"
                             "      \"nsamples\": 2,\n"
                             "      \"filesize\": 10240\n"
                             "    },\n"
                             "    {\n"
                             "      \"url\": \"plain-000.tar\",\n"
                             "      \"md5sum\": \"da4cd3f475896b2b4b5081cd26801fac\",\n"
                             "      \"nsamples\": 3,\n"
                             "      \"filesize\": 10240\n"
                             "    }\n"
                             "  ],\n"
                             "  \"name\": \"pax\"\n"
                             "}";

#define HEAD "{\"wids_version\": 1, \"shardlist\": "

static void test_wids(void)
{
    static const struct wids_row {
        const char *name, *text;
        int status;
        uint64_t shards;
    } rows[] = {
        {"of the tool", shards, 0, 2},
        {"without kind", HEAD "[{\"url\": \"x\", \"nsamples\": 0}]}", 0, 1},
        {"no JSON", "{\"wids_version\": 1", STOKER_ERROR_FORMAT, 0},
        {"another JSON", "{\"shards\": []}", STOKER_ERROR_FORMAT, 0},
        {"a list", "[1]", STOKER_ERROR_FORMAT, 0},
        {"another kind", "{\"__kind__\": \"x\", \"wids_version\": 1}", STOKER_ERROR_FORMAT, 0},
        {"kind of no text", "{\"__kind__\": 7, \"wids_version\": 1}", STOKER_ERROR_FORMAT, 0},
        {"a later version", "{\"wids_version\": 2, \"shardlist\": [{}]}", STOKER_ERROR_UNSUPPORTED,
         0},
        {"a later kind", "{\"__kind__\": \"wids-shard-index-v2\", \"wids_version\": 1}",
         STOKER_ERROR_UNSUPPORTED, 0},
        {"data sets of data sets",
         HEAD "[{\"url\": \"x\", \"nsamples\": 1}], \"datasets\": [{\"source_url\": \"y\"}]}",
         STOKER_ERROR_UNSUPPORTED, 0},
        {"no list", "{\"wids_version\": 1}", STOKER_ERROR_CORRUPT, 0},
        {"empty list", HEAD "[]}", STOKER_ERROR_CORRUPT, 0},
        {"list of numbers", HEAD "[1]}", STOKER_ERROR_CORRUPT, 0},
        {"no url", HEAD "[{\"nsamples\": 1}]}", STOKER_ERROR_CORRUPT, 0},
        {"empty url", HEAD "[{\"url\": \"\", \"nsamples\": 1}]}", STOKER_ERROR_CORRUPT, 0},
        {"no count", HEAD "[{\"url\": \"x\"}]}", STOKER_ERROR_CORRUPT, 0},
        {"count of text", HEAD "[{\"url\": \"x\", \"nsamples\": \"1\"}]}", STOKER_ERROR_CORRUPT, 0},
        {"count below 0", HEAD "[{\"url\": \"x\", \"nsamples\": -1}]}", STOKER_ERROR_CORRUPT, 0},
        {"huge count", HEAD "[{\"url\": \"x\", \"nsamples\": 99999999999999999999}]}",
         STOKER_ERROR_FORMAT, 0},
        {"size of text", HEAD "[{\"url\": \"x\", \"nsamples\": 1, \"filesize\": \"2\"}]}",
         STOKER_ERROR_CORRUPT, 0},
    };
    struct stk_wids_index *wids;
    struct stk_wids_index_shard shard;
    struct stoker_error error;

    T_EACH(wids_row, row, rows)
    {
        error = (struct stoker_error){0};
        T_EQ(row->name, stk_wids_index_open(&wids, stk_view_of_text(row->text), &error),
             row->status);
        if (row->status < 0) {
            T_ERROR(row->name, &error);
            T_TRUE(row->name, wids == NULL);
            continue;
        }
        T_EQ(row->name, stk_wids_index_count(wids), row->shards);
        stk_wids_index_close(wids);
    }
    T_EQ("open", stk_wids_index_open(&wids, stk_view_of_text(shards), &error), 0);
    stk_wids_index_get(wids, 0, &shard);
    T_STR("url", shard.url, "pax.tar");
    T_TRUE("counts", shard.samples == 2 && shard.bytes == 10240);
    stk_wids_index_get(wids, 1, &shard);
    T_STR("url", shard.url, "plain-000.tar");
    T_TRUE("counts", shard.samples == 3 && shard.bytes == 10240);
    stk_wids_index_close(wids);
    T_EQ("open",
         stk_wids_index_open(&wids, stk_view_of_text(HEAD "[{\"url\": \"x\", \"nsamples\": 9}]}"),
                             &error),
         0);
    stk_wids_index_get(wids, 0, &shard);
    T_TRUE("no size", shard.samples == 9 && shard.bytes == STK_WIDS_INDEX_UNKNOWN);
    stk_wids_index_close(wids);
    T_EQ("too long",
         stk_wids_index_open(&wids, (struct stk_view){NULL, STK_WIDS_INDEX_BYTES_MAX + 1}, &error),
         STOKER_ERROR_LIMIT);
}

static void test_wids_paths(void)
{
    static const struct path_row {
        const char *name, *folder, *url, *path; /* NULL: too long */
    } rows[] = {
        {"relative", "d/", "a.tar", "d/a.tar"},
        {"here", "", "a.tar", "a.tar"},
        {"absolute", "d/", "/x/a.tar", "/x/a.tar"},
        {"file url", "d/", "file:///x/a.tar", "/x/a.tar"},
        {"short file url", "d/", "file:a.tar", "d/a.tar"},
        {"elsewhere", "d/", "gs://b/a.tar", "gs://b/a.tar"},
        {"too long", "0123456789/", "0123456789012345678", NULL},
    };

    T_EACH(path_row, row, rows)
    {
        char path[30];
        bool fits = stk_wids_index_path(row->folder, row->url, path, sizeof path);

        T_EQ(row->name, fits, row->path != NULL);
        T_STR(row->name, fits ? path : "", row->path ? row->path : "");
    }
}

/* ---- headers ---- */

static void test_headers(void)
{
    static const struct fit_row {
        const char *name;
        const char *names[2]; /* members before data, of no bytes but the last */
        const char *key, *extension;
        uint64_t bytes;
        size_t cut;
        const char *why; /* NULL: it fits */
    } rows[] = {
        {"fits", {"a/0.jpg"}, "a/0", "jpg", 700, 0, NULL},
        {"case", {"a/0.JPG"}, "a/0", "jpg", 700, 0, NULL},
        {"what is no sample before it", {"README", "a.jpg"}, "a", "jpg", 700, 0, NULL},
        {"another key", {"a/1.jpg"}, "a/0", "jpg", 700, 0, "name"},
        {"another extension", {"a/0.png"}, "a/0", "jpg", 700, 0, "name"},
        {"a longer key", {"a/00.jpg"}, "a/0", "jpg", 700, 0, "name"},
        {"another size", {"a/0.jpg"}, "a/0", "jpg", 699, 0, "size"},
        {"left out", {"a.cls", "a.jpg"}, "a", "jpg", 700, 0, "leaves out"},
        {"too early", {"a.jpg"}, "a", "jpg", 700, 512, "no header"},
        {"nothing", {NULL}, "a", "jpg", 700, 0, "no header"},
    };
    static const uint8_t data[700];

    T_EACH(fit_row, row, rows)
    {
        struct t_tar tar = {0};
        struct stk_header_claim claim = {stk_view_of_text(row->key),
                                         stk_view_of_text(row->extension), row->bytes};
        const char *why = "";
        size_t bytes = 0;

        for (int i = 0; i < 2 && row->names[i]; i++) {
            bool is_last = i == 1 || !row->names[i + 1];

            t_tar_add(&tar, row->names[i], data, is_last ? sizeof data : 0);
            bytes += 512;
        }
        T_EQ(row->name,
             stk_header_check((struct stk_view){tar.data, bytes - row->cut}, &claim, &why),
             row->why != NULL);
        if (row->why) {
            T_HAS(row->name, why, row->why);
        }
        t_tar_free(&tar);
    }
}

static void test_header_block(void)
{
    static const char longer[] =
        "0123456789012345678901234567890123456789012345678901234567890123456789"
        "0123456789012345678901234567890123456789";
    static const struct block_row {
        const char *name, *member; /* NULL: a block of data */
        const char *key, *extension;
        uint64_t bytes;
        int want;
    } rows[] = {
        {"fits", "a/0.jpg", "a/0", "jpg", 700, 0},
        {"case", "a/0.JPG", "a/0", "jpg", 700, 0},
        {"another key", "a/1.jpg", "a/0", "jpg", 700, 1},
        {"another extension", "a/0.png", "a/0", "jpg", 700, 1},
        {"another size", "a/0.jpg", "a/0", "jpg", 701, 1},
        {"no header", NULL, "a/0", "jpg", 700, 1},
        {"a name of an extended header", "a/0.jpg", longer, "jpg", 700, 0},
        {"its size is compared", "a/0.jpg", longer, "jpg", 701, 1},
        {"a name that is not ASCII", "a/0.jpg", "\xc3\xa4", "jpg", 700, 0},
        {"a size of an extended header", "a/0.jpg", "a/0", "jpg", UINT64_C(9) << 30, 0},
    };
    static const uint8_t data[700];

    T_EACH(block_row, row, rows)
    {
        struct stk_header_claim claim = {stk_view_of_text(row->key),
                                         stk_view_of_text(row->extension), row->bytes};
        struct t_tar tar = {0};

        t_tar_add(&tar, row->member ? row->member : "x", data, sizeof data);
        T_EQ(row->name, stk_header_block_check(tar.data + (row->member ? 0 : 512), &claim),
             row->want);
        t_tar_free(&tar);
    }
}

int main(void)
{
    test_dali();
    test_energon();
    test_wids();
    test_wids_paths();
    test_headers();
    test_header_block();
    return t_finish();
}
