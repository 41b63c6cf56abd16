/* Goal: names, globs and folders expand to the objects that bash, webdataset and torchvision would
 * read, in their order; an unreadable one is a typed error with its path.
 * Method: tables of patterns with their names; simulated folders (links, loops and folders that
 * even root cannot read) with the paths written out by hand in the order of torchvision's
 * make_dataset; and one real folder, listed by Python's os.walk as oracle. Covers glob.c;
 * python/tests/test_copy_safety.py tests its links. */
#include "storage/source/source.h"

#include "base/mem.h"
#include "io/listing.h"
#include "io/sim/sim.h"
#include "storage/source/path_list.h"
#include "storage/vfs/vfs.h"
#include "test/server.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const endings[] = {".tar",     ".tar.gz", ".tgz", ".tar.zst",
                                      ".tar.bz2", ".tar.xz", NULL};
static const struct stk_source_options defaults = {.endings = endings};

static const struct braces_row {
    const char *name, *pattern;
    int status;
    size_t count;
    const char *names; /* joined by spaces, "..." where only the count counts */
} braces_rows[] = {
    {"plain", "a.tar", 0, 1, "a.tar"},
    {"empty", "", 0, 1, ""},
    {"leading zeros stay", "s-{000..003}.tar", 0, 4, "s-000.tar s-001.tar s-002.tar s-003.tar"},
    {"no zeros", "{9..11}", 0, 3, "9 10 11"},
    {"zeros of the other end", "{1..03}", 0, 3, "01 02 03"},
    {"zero itself pads nothing", "{0..10..5}", 0, 3, "0 5 10"},
    {"down", "{3..1}", 0, 3, "3 2 1"},
    {"negative", "{-1..1}", 0, 3, "-1 0 1"},
    {"negative padded", "{-01..1}", 0, 3, "-01 000 001"},
    {"step", "{1..8..3}", 0, 3, "1 4 7"},
    {"step down", "{8..1..-3}", 0, 3, "8 5 2"},
    {"step 0 is 1", "{1..2..0}", 0, 2, "1 2"},
    {"letters", "{a..e..2}", 0, 3, "a c e"},
    {"letters of both cases", "{Y..b}", 0, 4, "Y Z a b"},
    {"choice", "{a,b}{x,y}", 0, 4, "ax ay bx by"},
    {"empty choice", "a{,b}", 0, 2, "a ab"},
    {"nested", "{a,b{1..2},{c,d}}", 0, 5, "a b1 b2 c d"},
    {"range in text", "x{1..2}y{3..4}z", 0, 4, "x1y3z x1y4z x2y3z x2y4z"},
    {"one choice is text", "{a}", 0, 1, "{a}"},
    {"nothing is text", "{}", 0, 1, "{}"},
    {"text around a choice", "{a{b,c}}", 0, 2, "{ab} {ac}"},
    {"no range", "{1..b}", 0, 1, "{1..b}"},
    {"no range either", "{1..}", 0, 1, "{1..}"},
    {"escaped", "\\{a,b\\}", 0, 1, "{a,b}"},
    {"escaped comma", "{a\\,b,c}", 0, 2, "a,b c"},
    {"last backslash", "a\\", 0, 1, "a\\"},
    {"many", "{000000..099999}", 0, 100000, "..."},
    {"open", "a{b", STOKER_ERROR_ARGUMENT, 0, NULL},
    {"open inside", "{a,{b}", STOKER_ERROR_ARGUMENT, 0, NULL},
    {"closed", "a}b", STOKER_ERROR_ARGUMENT, 0, NULL},
    {"too many", "{0..10000000}", STOKER_ERROR_LIMIT, 0, NULL},
    {"far too many", "{1..9999999}{1..9999999}{1..9999999}", STOKER_ERROR_LIMIT, 0, NULL},
    {"the most of 64 bits", "{-999999999999999999..999999999999999999}", STOKER_ERROR_LIMIT, 0,
     NULL},
    {"too many digits", "{1..9999999999999999999}", 0, 1, "{1..9999999999999999999}"},
};

static void test_braces(void)
{
    T_EACH(braces_row, row, braces_rows)
    {
        struct stoker_error error = {0};
        int64_t alive = stk_mem_alive();
        char *text = NULL, joined[256] = "";
        size_t count = 0, used = 0;

        T_EQ(row->name, stk_braces_expand(row->pattern, &text, &count, &error), row->status);
        T_EQ(row->name, count, row->count);
        if (row->status < 0) {
            T_ERROR(row->name, &error);
        } else if (strcmp(row->names, "...") != 0) {
            const char *name = text;

            for (size_t i = 0; i < count; i++) {
                used += (size_t)snprintf(joined + used, sizeof joined - used, "%s%s", i ? " " : "",
                                         name);
                name += strlen(name) + 1;
            }
            T_STR(row->name, joined, row->names);
        }
        stk_free(text);
        T_EQ(row->name, stk_mem_alive(), alive);
    }
}

static void test_deep_braces(void)
{
    struct stoker_error error = {0};
    char pattern[256] = "", *text = NULL;
    size_t count = 0;

    for (int i = 0; i < 60; i++) {
        pattern[i] = '{';
        pattern[60 + 2 * i] = ',';
        pattern[61 + 2 * i] = '}';
    }
    T_EQ("deep", stk_braces_expand(pattern, &text, &count, &error), STOKER_ERROR_LIMIT);
    T_ERROR("deep", &error);
}

static const struct match_row {
    const char *pattern, *name;
    bool want;
} match_rows[] = {
    {"*", "a", true},
    {"*", "", true},
    {"*", ".a", false},
    {".*", ".a", true},
    {"?", "a", true},
    {"?", "", false},
    {"?", ".", false},
    {"?", "\xc3\xa9", true}, /* one letter of two bytes */
    {"??", "\xc3\xa9", false},
    {"?", "\xff", true},      /* a byte that is no letter */
    {"?", "\xc0\x80", false}, /* two bytes: neither is UTF-8 (not the shortest form) */
    {"??", "\xc0\x80", true},
    {"?", "\xed\xa0\x80", false}, /* three bytes: a surrogate is not UTF-8 */
    {"???", "\xed\xa0\x80", true},
    {"a*b*c", "aXbYc", true},
    {"a*b*c", "abcbc", true},
    {"a*b*c", "abcb", false},
    {"*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
    {"**", "ab", true},
    {"[abc]", "b", true},
    {"[a-c]", "b", true},
    {"[a-c]", "d", false},
    {"[!a-c]", "d", true},
    {"[^a-c]", "a", false},
    {"[]a]", "]", true},
    {"[!]a]", "]", false},
    {"[a-]", "-", true},
    {"[\xc3\xa0-\xc3\xb0]", "\xc3\xa9", true},
    {"[a", "[a", true},
    {"[a", "a", false},
    {"x[0-9]*.tar", "x17.tar", true},
    {"x[0-9]*.tar", "x.tar", false},
};

static void test_match(void)
{
    T_EACH(match_row, row, match_rows)
    {
        T_EQ(row->pattern, stk_glob_match(row->pattern, strlen(row->pattern), row->name),
             row->want);
    }
}

/* Tars, class folders, and everything that is wrong in its own way. */
static const char *const world_files[] = {
    "tars/b.tar", "tars/a.tar", "tars/deep/c.tar.gz", "tars/A.TGZ", "tars/index.json",
    "tars/preview.png", "tars/.hidden.tar", "tars/[x].tar", "tars/{y}.tar",
    /* "a-b" sorts before "a/c"; ".JPG" counts; a class folder in a class folder does not */
    "train/dog/a-b/1.jpg", "train/dog/a/c/2.jpg", "train/dog/a/3.jpg", "train/dog/z.jpg",
    "train/dog/B.JPG", "train/cat/1.png", "train/cat/notes.txt", "train/cat/0.webp",
    "train/ant/x.jfif", "train/readme.txt", "train/loose.jpg", "flat/1.jpg", "flat/2.jpg",
    "gap/full/1.jpg", "mixed/one/1.jpg", "mixed/two/2.tar", "old/cat/1.gif", "old/cat/2.jpg",
    "locked/cat/1.jpg", "locked/dog/1.jpg", "looped/cat/1.jpg", "selfish/cat/1.jpg",
    "dangling/cat/1.jpg", "linked/cat/1.jpg", "other/cat/1.jpg", "odd", "single.jpg",
    "flat/notes.txt", "beside/1.jpg", "beside/deep/notes.txt", "flat old/1.jpg", "flat old/2.bmp",
    "mac/.DS_Store", "mac/._x.jpg", "mac/cat/1.jpg", "mac/cat/._1.jpg", "mac/cat/Thumbs.db",
    "mac/cat/.ipynb_checkpoints/1.jpg", "mac/.ipynb_checkpoints/1.jpg", "hugging/dataset_info.json",
    "hugging/data-00000-of-00001.arrow"};

static struct stk_io *world_new(void)
{
    struct stk_io *io = NULL;
    struct stk_sim_rule locked = {"locked/dog", STK_SIM_FAULT_DENIED, 0, 0, 0, 0};

    T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
    for (size_t i = 0; i < STK_COUNT(world_files); i++) {
        T_EQ(world_files[i], stk_sim_add(io, world_files[i], "x", 1), 0);
    }
    T_EQ("empty", stk_sim_add(io, "empty", NULL, 0), 0);
    T_EQ("gap", stk_sim_add(io, "gap/hole", NULL, 0), 0);
    T_EQ("link", stk_sim_add_link(io, "looped/cat/up", ".."), 0);
    T_EQ("link", stk_sim_add_link(io, "selfish/cat/me", "me"), 0);
    T_EQ("link", stk_sim_add_link(io, "dangling/cat/2.jpg", "nowhere"), 0);
    T_EQ("link", stk_sim_add_link(io, "linked/dog", "../other/cat"), 0);
    T_EQ("link", stk_sim_add_link(io, "linked/notes", "nowhere"), 0);
    T_EQ("rule", stk_sim_add_rule(io, &locked), 0);
    return io;
}

/* Paths joined by spaces, each class with its number in front. */
static const struct list_row {
    const char *name;
    const char *urls[3];
    int status;
    const char *paths, *classes; /* of an error: `paths` is a part of its place */
} list_rows[] = {
    {"one tar", {"tars/a.tar"}, 0, "tars/a.tar", NULL},
    {"url", {"file:///tars/a.tar"}, 0, "/tars/a.tar", NULL},
    {"tars in the order given", {"tars/b.tar", "tars/a.tar"}, 0, "tars/b.tar tars/a.tar", NULL},
    {"braces", {"tars/{b,a}.tar"}, 0, "tars/b.tar tars/a.tar", NULL},
    {"glob", {"tars/?.tar"}, 0, "tars/a.tar tars/b.tar", NULL},
    {"glob of folders", {"t*s/[b-z].tar"}, 0, "tars/b.tar", NULL},
    {"glob of hidden", {"tars/.*"}, 0, "tars/.hidden.tar", NULL},
    {"deep glob", {"tars/**/c.tar.gz"}, 0, "tars/deep/c.tar.gz", NULL},
    {"deep glob twice", {"tars/**/**/c.tar.gz"}, 0, "tars/deep/c.tar.gz", NULL},
    {"deep glob at the end", {"tars/deep/**"}, 0, "tars/deep/c.tar.gz", NULL},
    {"glob from the root", {"/tars/deep/*"}, 0, "/tars/deep/c.tar.gz", NULL},
    {"braces and glob", {"tars/{b,[!b]}.tar"}, 0, "tars/b.tar tars/a.tar", NULL},
    {"a name with brackets", {"tars/[x].tar"}, 0, "tars/[x].tar", NULL},
    {"a name with braces", {"tars/{y}.tar"}, 0, "tars/{y}.tar", NULL},
    {"folder of tars",
     {"tars/"},
     0,
     "tars/.hidden.tar tars/A.TGZ tars/[x].tar tars/a.tar tars/b.tar tars/deep/c.tar.gz "
     "tars/{y}.tar",
     NULL},
    {"any ending if named", {"odd"}, 0, "odd", NULL},
    {"imagefolder",
     {"train"},
     0,
     "0:train/ant/x.jfif 1:train/cat/0.webp 1:train/cat/1.png 2:train/dog/B.JPG "
     "2:train/dog/z.jpg 2:train/dog/a/3.jpg 2:train/dog/a-b/1.jpg 2:train/dog/a/c/2.jpg",
     "ant cat dog"},
    {"links to folders", {"/linked//"}, 0, "0:/linked/cat/1.jpg 1:/linked/dog/1.jpg", "cat dog"},
    {"absent", {"absent.tar"}, -ENOENT, "absent.tar", NULL},
    {"absent in braces", {"tars/{a,q}.tar"}, -ENOENT, "tars/q.tar", NULL},
    {"no match", {"tars/*.zip"}, STOKER_ERROR_EMPTY, "tars/*.zip", NULL},
    {"no urls", {NULL}, STOKER_ERROR_EMPTY, "", NULL},
    {"empty folder", {"empty"}, STOKER_ERROR_EMPTY, "empty", NULL},
    {"pictures alone", {"flat"}, 0, "-1:flat/1.jpg -1:flat/2.jpg", ""},
    {"pictures beside folders", {"beside"}, STOKER_ERROR_MISSING, "beside", NULL},
    {"pictures alone, of another kind", {"flat old"}, 0, "-1:flat old/1.jpg -1:flat old/2.bmp", ""},
    {"a class without pictures", {"gap"}, STOKER_ERROR_EMPTY, "gap/hole", NULL},
    {"tars and pictures", {"mixed"}, STOKER_ERROR_ARGUMENT, "mixed/two/2.tar", NULL},
    {"tars, then a folder", {"odd", "train"}, STOKER_ERROR_ARGUMENT, "train", NULL},
    {"a folder, then tars", {"train", "odd"}, STOKER_ERROR_ARGUMENT, "odd", NULL},
    {"two folders", {"train", "linked"}, STOKER_ERROR_ARGUMENT, "linked", NULL},
    {"another kind", {"old"}, 0, "0:old/cat/1.gif 0:old/cat/2.jpg", "cat"},
    {"files of systems", {"mac"}, 0, "0:mac/cat/1.jpg", "cat"},
    {"files of another program", {"hugging"}, STOKER_ERROR_EMPTY, "an Arrow file", NULL},
    {"unreadable", {"locked"}, -EACCES, "locked/dog", NULL},
    {"unreadable for a glob", {"locked/dog/*"}, -EACCES, "locked/dog", NULL},
    {"a loop", {"looped"}, -ELOOP, "looped/cat/up", NULL},
    {"a loop for a glob", {"looped/**/x"}, -ELOOP, "looped/cat/up", NULL},
    {"a link to itself", {"selfish"}, -ELOOP, "selfish/cat/me", NULL},
    {"a picture that is no more", {"dangling"}, -ENOENT, "dangling/cat/2.jpg", NULL},
    {"a picture", {"single.jpg"}, STOKER_ERROR_ARGUMENT, "single.jpg", NULL},
    {"a store, where there is none", {"s3://bucket/a.tar"}, -ENOENT, "s3://", NULL},
    {"a pipe", {"pipe:cat a.tar"}, STOKER_ERROR_UNSUPPORTED, "pipe:", NULL},
    {"bad braces", {"tars/{a"}, STOKER_ERROR_ARGUMENT, "tars/{a", NULL},
};

/* The effect of options, and the problems that are listed. */
static const struct option_row {
    const char *name, *url;
    struct stk_source_options options;
    int status;
    const char *paths, *classes, *problems;
} option_rows[] = {
    {"an empty class is skipped",
     "gap",
     {.skip_files = true},
     0,
     "0:gap/full/1.jpg",
     "full hole",
     "2:gap/hole"},
    {"an empty class is allowed",
     "gap",
     {.allow_empty = true},
     0,
     "0:gap/full/1.jpg",
     "full hole",
     ""},
    {"a link to nothing is skipped",
     "dangling",
     {.skip_files = true},
     0,
     "0:dangling/cat/1.jpg",
     "cat",
     "1:dangling/cat/2.jpg"},
    {"files of systems are listed",
     "mac",
     {0},
     0,
     "0:mac/cat/1.jpg",
     "cat",
     "3:mac/.DS_Store 3:mac/._x.jpg 3:mac/.ipynb_checkpoints 3:mac/cat/._1.jpg "
     "3:mac/cat/Thumbs.db 3:mac/cat/.ipynb_checkpoints"},
    {"numbers of another split",
     "gap",
     {.allow_empty = true,
      .classes = (const char *const[]){"ant", "hole", "full"},
      .class_count = 3},
     0,
     "2:gap/full/1.jpg",
     "ant hole full",
     ""},
    {"an empty class that is among the classes",
     "gap",
     {.classes = (const char *const[]){"ant", "hole", "full"}, .class_count = 3},
     0,
     "2:gap/full/1.jpg",
     "ant hole full",
     ""},
    {"a class that has no number",
     "gap",
     {.allow_empty = true, .classes = (const char *const[]){"full"}, .class_count = 1},
     STOKER_ERROR_ARGUMENT,
     "hole",
     NULL,
     NULL},
};

static void join(const struct stk_source_files *objects, char *text, size_t bytes, bool classes)
{
    uint64_t count = classes ? objects->class_count : objects->count;
    size_t used = 0;

    text[0] = '\0';
    for (uint64_t i = 0; i < count; i++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s", i ? " " : "");
        if (objects->classes && !classes) {
            used += (size_t)snprintf(text + used, bytes - used,
                                     "%lld:", (long long)objects->classes[i]);
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s",
                                 objects->text +
                                     (classes ? objects->class_names[i] : objects->paths[i]));
    }
}

static void test_options(void)
{
    struct stk_io *io = world_new();

    T_EACH(option_row, row, option_rows)
    {
        struct stk_source_files objects = {0};
        struct stoker_error error = {0};
        int64_t alive = stk_mem_alive();
        char text[1024] = "";
        size_t used = 0;
        struct stk_source_options options = row->options;

        options.endings = endings;
        T_EQ(row->name, stk_source_list(io, &row->url, 1, &options, &objects, &error), row->status);
        if (row->status < 0) {
            T_HAS(row->name, error.where, row->paths);
        } else {
            join(&objects, text, sizeof text, false);
            T_STR(row->name, text, row->paths);
            join(&objects, text, sizeof text, true);
            T_STR(row->name, text, row->classes);
            text[0] = '\0';
            for (uint64_t i = 0; i < objects.problems_listed; i++) {
                used += (size_t)snprintf(text + used, sizeof text - used, "%s%u:%s", i ? " " : "",
                                         objects.problems[i].kind, objects.problems[i].path);
            }
            T_STR(row->name, text, row->problems);
            T_EQ(row->name, objects.problem_count, objects.problems_listed);
        }
        stk_source_files_deinit(&objects);
        T_EQ(row->name, stk_mem_alive(), alive);
    }
    stk_io_close(io);
}

static void test_lists(void)
{
    struct stk_io *io = world_new();

    T_EACH(list_row, row, list_rows)
    {
        struct stk_source_files objects = {0};
        struct stoker_error error = {0};
        int64_t alive = stk_mem_alive();
        size_t count = 0;
        char text[1024];

        while (count < STK_COUNT(row->urls) && row->urls[count]) {
            count++;
        }
        T_EQ(row->name, stk_source_list(io, row->urls, count, &defaults, &objects, &error),
             row->status);
        if (row->status < 0) {
            T_ERROR(row->name, &error);
            T_HAS(row->name, error.where, row->paths);
        } else {
            join(&objects, text, sizeof text, false);
            T_STR(row->name, text, row->paths);
            T_EQ(row->name, objects.kind, row->classes ? STK_SOURCE_FOLDER : STK_SOURCE_TARS);
            join(&objects, text, sizeof text, true);
            T_STR(row->name, text, row->classes ? row->classes : "");
            T_TRUE(row->name, !row->classes || objects.text[objects.root_bytes - 1] == '/');
        }
        stk_source_files_deinit(&objects);
        T_EQ(row->name, stk_mem_alive(), alive);
    }
    stk_io_close(io);
}

/* A chain of folders one longer than the bound. */
static void test_depth(void)
{
    struct stk_io *io = world_new();
    struct stk_source_files objects = {0};
    struct stoker_error error = {0};
    const char *folder = "chain", *glob = "chain/**/x";
    char path[512] = "chain";

    for (int i = 0; i <= STK_SOURCE_DEPTH_MAX; i++) {
        snprintf(path + strlen(path), sizeof path - strlen(path), "/f");
    }
    T_EQ("chain", stk_sim_add(io, path, NULL, 0), 0);
    T_EQ("folder", stk_source_list(io, &folder, 1, &defaults, &objects, &error),
         STOKER_ERROR_LIMIT);
    T_ERROR("folder", &error);
    T_EQ("glob", stk_source_list(io, &glob, 1, &defaults, &objects, &error), STOKER_ERROR_LIMIT);
    T_ERROR("glob", &error);
    stk_io_close(io);
}

static void test_memory(void)
{
    static const char *const urls[] = {"train", "tars/{a,b}.tar", "tars/**/*.tar"};
    struct stk_io *io = world_new();
    int64_t alive = stk_mem_alive();

    for (size_t i = 0; i < STK_COUNT(urls); i++) {
        int status = -1;

        for (uint64_t n = 1; status < 0 && n < 1000; n++) {
            struct stk_source_files objects = {0};
            struct stoker_error error = {0};

            stk_mem_fail_nth(n);
            status = stk_source_list(io, &urls[i], 1, &defaults, &objects, &error);
            stk_mem_fail_nth(0);
            if (status < 0) {
                T_EQ(urls[i], status, -ENOMEM);
                T_ERROR(urls[i], &error);
                T_EQ(urls[i], objects.count, 0);
            }
            stk_source_files_deinit(&objects);
            T_EQ(urls[i], stk_mem_alive(), alive);
        }
        T_EQ(urls[i], status, 0);
    }
    stk_io_close(io);
}

/* torchvision's make_dataset, as of 0.20, on a real folder. */
static const char oracle[] =
    "import os, sys\n"
    "os.chdir(sys.argv[1])\n"
    "names = ['b/x.jpg', 'b/x/1.jpg', 'b/x-y/2.jpg', 'b/x.y/3.PNG', 'b/x/z/4.jpg', 'b/Z.jpg',\n"
    "         'a b/1.jpg', 'a b/10.jpg', 'a b/9.jpg', 'A/\\u00e9.jpg', 'A/\\U0001f600.jpg',\n"
    "         'A/z.jpg', 'A/.jpg', 'A/.h/5.webp', 'A/skip.txt', 'top.jpg', 'away/q.jpeg']\n"
    "for name in names:\n"
    "    path = os.path.join('away' if name.startswith('away') else 'root', name)\n"
    "    os.makedirs(os.path.dirname(path), exist_ok=True)\n"
    "    open(path, 'w').close()\n"
    "os.symlink('../../away', 'root/b/x.link')\n"
    "os.symlink('../away', 'root/c')\n"
    "classes = sorted(entry.name for entry in os.scandir('root') if entry.is_dir())\n"
    "out = []\n"
    "for index, name in enumerate(classes):\n"
    "    for root, _, files in sorted(os.walk(os.path.join('root', name), followlinks=True)):\n"
    "        for file in sorted(files):\n"
    "            if file.lower().endswith(('.jpg', '.jpeg', '.png', '.webp')):\n"
    "                out.append(f'{index}:{os.path.join(root, file)}')\n"
    "sys.stdout.buffer.write(' '.join(out).encode())\n";

static void test_oracle(void)
{
    char folder[] = "/tmp/stoker-source-test-XXXXXX", command[4096], want[4096], got[4096];
    const char *url = "root", *python = getenv("STOKER_PYTHON");
    struct stk_io_options options = {0};
    struct stk_source_files objects = {0};
    struct stk_io *io = NULL;
    char before[512];
    size_t bytes;
    FILE *pipe;

    T_TRUE("folder", mkdtemp(folder) != NULL && getcwd(before, sizeof before) != NULL);
    snprintf(command, sizeof command, "%s - %s <<'END'\n%sEND\n", python ? python : "python3",
             folder, oracle);
    pipe = popen(command, "r");
    bytes = pipe ? fread(want, 1, sizeof want - 1, pipe) : 0;
    want[bytes] = '\0';
    if (pipe && pclose(pipe) == 0) {
        T_EQ("chdir", chdir(folder), 0);
        T_EQ("io", stk_io_open(&io, &options, NULL), 0);
        T_EQ("list", stk_source_list(io, &url, 1, &defaults, &objects, NULL), 0);
        join(&objects, got, sizeof got, false);
        T_STR("the order of torchvision", got, want);
        T_TRUE("all of it", objects.count > 12);
        stk_source_files_deinit(&objects);
        stk_io_close(io);
        T_EQ("back", chdir(before), 0);
    } else {
        printf("no python3: the oracle is left out\n");
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    T_EQ("clean", system(command), 0);
}

/* ---- a store that counts requests ---- */

static uint32_t stat_calls;

static int store_list(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                      struct stoker_error *error)
{
    struct stk_listing_builder builder = {.count = 0};
    struct stk_entry file = {.name = "a", .kind = STK_ENTRY_FILE};
    struct stk_entry folder = {.name = "y", .kind = STK_ENTRY_DIRECTORY};
    int status = stk_listing_add(&builder, &file);

    (void)io;
    (void)error;
    file.name = "b";
    status = status < 0 ? status : stk_listing_add(&builder, &file);
    if (status == 0 && strstr(path, "/y") == NULL) {
        status = stk_listing_add(&builder, &folder);
    }
    status = status < 0 ? status : stk_listing_build(&builder, listing_out);
    stk_listing_builder_deinit(&builder);
    return status;
}

static int store_stat(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                      struct stoker_error *error)
{
    (void)io;
    (void)path;
    (void)error;
    stat_calls++;
    *stat_out = (struct stk_stat){.kind = STK_ENTRY_FILE};
    return 0;
}

/* Metadata from a listing is not requested again for each name. */
static void test_store_globs(void)
{
    static const struct {
        const char *pattern, *want;
    } rows[] = {
        {"s3://d/x/*", "s3://d/x/a s3://d/x/b s3://d/x/y"},
        {"s3://d/x/**", "s3://d/x/a s3://d/x/b s3://d/x/y/a s3://d/x/y/b"},
        {"s3://d/x/**/b*", "s3://d/x/b s3://d/x/y/b"},
        {"s3://d/x/*/", "s3://d/x/y"},
    };
    static const struct stk_io_table table = {.list = store_list, .stat_path = store_stat};
    struct stk_io io = {.table = &table};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stoker_error error = {0};
        struct stk_path_list names = {0};
        char got[256] = "";

        stat_calls = 0;
        T_EQ(rows[i].pattern, stk_glob(&io, rows[i].pattern, false, &names, &error), 0);
        for (uint64_t j = 0; j < names.count; j++) {
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", j ? " " : "",
                     stk_path_list_get(&names, j));
        }
        T_STR(rows[i].pattern, got, rows[i].want);
        T_EQ(rows[i].pattern, stat_calls, 0);
        stk_path_list_deinit(&names);
    }
}

/* ---- a store with more folders than are listed at the same time ---- */

#define FOLDERS 150

static void serve_folders(int fd)
{
    char head[8192], body[16384], prefix[64];
    bool sent = true;

    while (sent && t_read_request(fd, head, sizeof head, NULL) > 0) {
        bool is_root = strstr(head, "prefix=root%2F&") || strstr(head, "prefix=root%2F ");
        const char *at = strstr(head, "prefix=root%2F");
        int used = snprintf(body, sizeof body,
                            "<ListBucketResult><IsTruncated>false"
                            "</IsTruncated>");

        for (int i = 0; is_root && i < FOLDERS; i++) {
            used += snprintf(body + used, sizeof body - (size_t)used,
                             "<CommonPrefixes><Prefix>root/c%03d/</Prefix></CommonPrefixes>", i);
        }
        if (is_root) {
            used += snprintf(body + used, sizeof body - (size_t)used,
                             "<CommonPrefixes><Prefix>root/__MACOSX/</Prefix></CommonPrefixes>");
        } else if (at && sscanf(at, "prefix=root%%2F%60[^%%]", prefix) == 1) {
            used += snprintf(body + used, sizeof body - (size_t)used,
                             "<Contents><Key>root/%s/1.jpg</Key><Size>5</Size>"
                             "<ETag>\"e\"</ETag></Contents>",
                             prefix);
        }
        used += snprintf(body + used, sizeof body - (size_t)used, "</ListBucketResult>");
        used = strstr(head, "list-type=2") ? used : 0; /* the probe for an object of this name */
        snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n",
                 used > 0 ? "200 OK" : "404 Not Found", used);
        sent = t_send(fd, head, strlen(head)) && t_send(fd, body, (size_t)used);
    }
}

/* The listing of a folder that is left out is freed. */
static void test_store_folders(void)
{
    struct stk_vfs_options options = {.read_timeout_ms = 5000, .unshared = true};
    struct stk_io *backend = NULL, *io = NULL;
    struct stk_source_files objects = {0};
    struct stoker_error error = {0};
    const char *url = "s3://bucket/root";
    struct t_server server;
    int64_t alive = stk_mem_alive();
    char endpoint[64];

    t_server_start(&server, serve_folders);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", server.port);
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    setenv("AWS_REGION", "us-east-1", 1);
    setenv("AWS_ACCESS_KEY_ID", "key", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    T_EQ("backend", stk_io_open(&backend, &(struct stk_io_options){.depth = 8}, &error), 0);
    T_EQ("vfs", stk_vfs_open(&io, backend, &options, &error), 0);
    T_EQ("list", stk_source_list(io, &url, 1, &defaults, &objects, &error), 0);
    T_EQ("samples", objects.count, FOLDERS);
    T_EQ("left out", objects.system_count, 1);
    stk_source_files_deinit(&objects);
    stk_io_close(io);
    t_server_stop(&server);
    T_EQ("all memory is freed", stk_mem_alive(), alive);
}

int main(void)
{
    test_braces();
    test_deep_braces();
    test_match();
    test_lists();
    test_options();
    test_depth();
    test_store_globs();
    test_store_folders();
    test_memory();
    test_oracle();
    stk_source_files_deinit(&(struct stk_source_files){0});
    return t_finish();
}
