/* The plan: sizes and sidecars of a folder, the pieces of a sample, and the cut into shards. */
#include "pack/plan.h"

#include "base/hash.h"
#include "base/mem.h"
#include "format/tar_write.h"
#include "format/wds.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PPM 1000000u

/* Pictures of one folder, which follow each other. */
struct run {
    uint64_t first, count;
    struct stk_sidecar *sidecars; /* owned; `at` in this run's text */
    uint64_t sidecar_count, sidecar_capacity;
    char *text; /* owned */
    uint64_t text_bytes, text_capacity;
    struct stk_sha256 source, stamp;
};

struct measure {
    struct stk_plan *plan;
    struct run *runs; /* owned */
    uint64_t run_count, run_capacity;
    const _Atomic bool *stop;
};

static int measure_folder(struct stk_plan *plan, const _Atomic bool *stop,
                          struct stoker_error *error);
static int measure_tars(struct stk_plan *plan, struct stoker_error *error);
static int find_runs(struct measure *measure, struct stoker_error *error);
static int measure_run(void *context, uint64_t round, struct stoker_error *error);
static int join_runs(struct measure *measure, struct stoker_error *error);
static int fail_memory(struct stoker_error *error);
static int fail_stopped(struct stoker_error *error);

int stk_plan_open(struct stk_plan *plan, struct stoker_dataset *dataset, uint32_t shuffle,
                  uint64_t seed, const _Atomic bool *stop, struct stoker_error *error)
{
    struct stk_order_options order = {.block_samples = 1,
                                      .window_blocks = 1,
                                      .group_count = 1,
                                      .shuffle = STOKER_SHUFFLE_FULL,
                                      .seed = seed};
    int status;

    *plan = (struct stk_plan){.dataset = dataset, .shuffled = shuffle == STOKER_SHUFFLE_FULL};
    plan->folder = dataset->objects.kind == STK_SOURCE_FOLDER;
    plan->sample_count = order.sample_count = stk_index_samples(dataset->index);
    if (plan->sample_count == 0) {
        return stk_fail(error, STOKER_ERROR_EMPTY, "the source has no samples", "look what it is",
                        "source");
    }
    if (plan->shuffled && stk_index_sequential(dataset->index)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                        "compressed shards can only be read front to back, not shuffled",
                        "pack them in their order first, then shuffle that", "source");
    }
    status = stk_order_init(&plan->order, &order, error);
    if (status == 0) {
        stk_order_begin(&plan->epoch, &plan->order, 0);
        status = plan->folder ? measure_folder(plan, stop, error) : measure_tars(plan, error);
    }
    if (status < 0) {
        stk_plan_close(plan);
    }
    return status;
}

void stk_plan_close(struct stk_plan *plan)
{
    stk_free(plan->file_bytes);
    stk_free(plan->sidecars);
    stk_free(plan->text);
    stk_free(plan->starts);
    *plan = (struct stk_plan){0};
}

uint64_t stk_plan_sample(const struct stk_plan *plan, uint64_t position)
{
    return plan->shuffled ? stk_order_sample(&plan->epoch, position) : position;
}

/* ---- what the source has ---- */

static void add_number(struct stk_sha256 *sha, uint64_t number)
{
    stk_sha256_add(sha, &number, sizeof number);
}

static int measure_tars(struct stk_plan *plan, struct stoker_error *error)
{
    const struct stk_index *index = plan->dataset->index;
    char path[STK_PATH_BYTES_MAX];
    struct stk_sha256 stamp;
    int status = 0;

    memcpy(plan->source, stk_index_identity(index), sizeof plan->source);
    stk_sha256_init(&stamp);
    stk_sha256_add(&stamp, plan->source, sizeof plan->source);
    for (uint64_t i = 0; i < plan->dataset->objects.count && status == 0; i++) {
        struct stk_stat about = {0};

        status = stk_index_path(index, (uint32_t)i, path, error);
        status =
            status < 0 ? status : stk_io_stat_path(plan->dataset->engine->io, path, &about, error);
        add_number(&stamp, about.bytes);
        add_number(&stamp, about.mtime_ns);
    }
    stk_sha256_done(&stamp, plan->stamp);
    return status;
}

static int measure_folder(struct stk_plan *plan, const _Atomic bool *stop,
                          struct stoker_error *error)
{
    struct measure measure = {.plan = plan, .stop = stop};
    int status;

    plan->file_bytes = stk_alloc(plan->sample_count, sizeof *plan->file_bytes);
    status = plan->file_bytes ? find_runs(&measure, error) : fail_memory(error);
    if (status == 0) {
        status = stk_engine_parallel(plan->dataset->engine, measure.run_count, measure_run,
                                     &measure, error);
    }
    if (status == 0) {
        status = join_runs(&measure, error);
    }
    for (uint64_t i = 0; i < measure.run_count; i++) {
        stk_free(measure.runs[i].sidecars);
        stk_free(measure.runs[i].text);
    }
    stk_free(measure.runs);
    return status;
}

static size_t folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) : 0;
}

static int find_runs(struct measure *measure, struct stoker_error *error)
{
    const struct stk_index *index = measure->plan->dataset->index;
    char path[2][STK_PATH_BYTES_MAX];
    size_t before = SIZE_MAX;

    for (uint64_t i = 0; i < measure->plan->sample_count; i++) {
        char *now = path[i % 2], *last = path[(i + 1) % 2];
        int status = stk_index_path(index, (uint32_t)i, now, error);
        size_t bytes;

        if (status < 0) {
            return status;
        }
        bytes = folder_bytes(now);
        if (bytes == before && memcmp(now, last, bytes) == 0) {
            measure->runs[measure->run_count - 1].count++;
            continue;
        }
        before = bytes;
        if (measure->run_count == measure->run_capacity) {
            uint64_t capacity = stk_max(64, measure->run_capacity * 2);
            void *grown =
                stk_realloc(measure->runs, measure->run_capacity, capacity, sizeof *measure->runs);
            if (!grown) {
                return fail_memory(error);
            }
            measure->runs = grown;
            measure->run_capacity = capacity;
        }
        measure->runs[measure->run_count++] = (struct run){.first = i, .count = 1};
    }
    return 0;
}

/* The first entry that is not below `name` of so many bytes, in a sorted listing. */
static size_t lower_bound(const struct stk_listing *listing, const char *name, size_t bytes)
{
    size_t low = 0, high = listing->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strncmp(listing->entries[middle].name, name, bytes) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int add_sidecar(struct run *run, uint64_t sample, const char *extension, uint64_t bytes)
{
    uint64_t length = strlen(extension) + 1;

    if (run->sidecar_count == run->sidecar_capacity) {
        uint64_t capacity = stk_max(64, run->sidecar_capacity * 2);
        void *grown =
            stk_realloc(run->sidecars, run->sidecar_capacity, capacity, sizeof *run->sidecars);
        if (!grown) {
            return -ENOMEM;
        }
        run->sidecars = grown;
        run->sidecar_capacity = capacity;
    }
    if (run->text_capacity - run->text_bytes < length) {
        uint64_t capacity = stk_max(run->text_capacity * 2, run->text_bytes + length);
        void *grown = stk_realloc(run->text, run->text_capacity, capacity, 1);
        if (!grown) {
            return -ENOMEM;
        }
        run->text = grown;
        run->text_capacity = capacity;
    }
    memcpy(run->text + run->text_bytes, extension, length);
    run->sidecars[run->sidecar_count++] =
        (struct stk_sidecar){.sample = sample, .bytes = bytes, .at = run->text_bytes};
    run->text_bytes += length;
    return 0;
}

/* The files beside a picture that differ from it in the extension only. path has room behind. */
static int find_sidecars(struct measure *measure, struct run *run, uint64_t sample,
                         const struct stk_listing *listing, char path[2 * STK_PATH_BYTES_MAX],
                         struct stoker_error *error)
{
    char *base = path + folder_bytes(path) + (strchr(path, '/') != NULL);
    char *dot = strrchr(base, '.');
    size_t stem = dot ? (size_t)(dot - base) + 1 : strlen(base); /* with its dot */
    char own[STK_PATH_BYTES_MAX];
    int status = 0;

    snprintf(own, sizeof own, "%s", base + stem);
    for (size_t i = lower_bound(listing, base, stem); status == 0 && dot && i < listing->count;
         i++) {
        const struct stk_entry *entry = &listing->entries[i];
        struct stk_stat about = {0};

        if (strncmp(entry->name, base, stem) != 0) {
            break;
        }
        if (entry->kind != STK_ENTRY_FILE || strchr(entry->name + stem, '.') ||
            strcmp(entry->name + stem, own) == 0 || strlen(entry->name) >= STK_PATH_BYTES_MAX) {
            continue;
        }
        memcpy(base + stem, entry->name + stem, strlen(entry->name + stem) + 1);
        status = stk_io_stat_path(measure->plan->dataset->engine->io, path, &about, error);
        if (status == 0 && add_sidecar(run, sample, entry->name + stem, about.bytes) < 0) {
            status = fail_memory(error);
        }
        stk_sha256_add(&run->source, entry->name, strlen(entry->name) + 1);
        add_number(&run->source, about.bytes);
        add_number(&run->stamp, about.mtime_ns);
    }
    return status;
}

static int measure_run(void *context, uint64_t round, struct stoker_error *error)
{
    struct measure *measure = context;
    struct run *run = &measure->runs[round];
    struct stk_io *io = measure->plan->dataset->engine->io;
    struct stk_listing listing = {0};
    char path[2 * STK_PATH_BYTES_MAX];
    int status = stk_index_path(measure->plan->dataset->index, (uint32_t)run->first, path, error);

    if (status == 0) {
        size_t bytes = folder_bytes(path);
        bool has_slash = path[bytes] == '/';

        path[bytes] = 0;
        status = stk_io_list(io, bytes ? path : has_slash ? "/" : ".", &listing, error);
    }
    stk_sha256_init(&run->source);
    stk_sha256_init(&run->stamp);
    for (uint64_t i = run->first; status == 0 && i < run->first + run->count; i++) {
        struct stk_stat about = {0};

        if (atomic_load_explicit(measure->stop, memory_order_relaxed)) {
            status = fail_stopped(error);
            break;
        }
        status = stk_index_path(measure->plan->dataset->index, (uint32_t)i, path, error);
        status = status < 0 ? status : stk_io_stat_path(io, path, &about, error);
        measure->plan->file_bytes[i] = about.bytes;
        add_number(&run->source, about.bytes);
        add_number(&run->stamp, about.mtime_ns);
        status = status < 0 ? status : find_sidecars(measure, run, i, &listing, path, error);
    }
    stk_listing_free(&listing);
    return status;
}

/* One list of sidecars and one hash, in the order of the samples. */
static int join_runs(struct measure *measure, struct stoker_error *error)
{
    struct stk_plan *plan = measure->plan;
    struct stk_sha256 source, stamp;
    uint8_t digest[32];

    stk_sha256_init(&source);
    stk_sha256_init(&stamp);
    stk_sha256_add(&source, stk_index_identity(plan->dataset->index), 32);
    for (uint64_t i = 0; i < measure->run_count; i++) {
        plan->sidecar_count += measure->runs[i].sidecar_count;
        plan->text_bytes += measure->runs[i].text_bytes;
    }
    plan->sidecars = stk_alloc(stk_max(plan->sidecar_count, 1), sizeof *plan->sidecars);
    plan->text = stk_alloc(stk_max(plan->text_bytes, 1), 1);
    if (!plan->sidecars || !plan->text) {
        return fail_memory(error);
    }
    plan->sidecar_count = plan->text_bytes = 0;
    for (uint64_t i = 0; i < measure->run_count; i++) {
        struct run *run = &measure->runs[i];

        for (uint64_t j = 0; j < run->sidecar_count; j++) {
            run->sidecars[j].at += plan->text_bytes;
            plan->sidecars[plan->sidecar_count++] = run->sidecars[j];
        }
        if (run->text_bytes > 0) {
            memcpy(plan->text + plan->text_bytes, run->text, run->text_bytes);
        }
        plan->text_bytes += run->text_bytes;
        stk_sha256_done(&run->source, digest);
        stk_sha256_add(&source, digest, sizeof digest);
        stk_sha256_done(&run->stamp, digest);
        stk_sha256_add(&stamp, digest, sizeof digest);
    }
    stk_sha256_done(&source, plan->source);
    stk_sha256_add(&stamp, plan->source, sizeof plan->source);
    stk_sha256_done(&stamp, plan->stamp);
    return 0;
}

/* ---- the pieces of a sample ---- */

void stk_pieces_deinit(struct stk_pieces *pieces)
{
    stk_free(pieces->items);
    stk_free(pieces->text);
    *pieces = (struct stk_pieces){0};
}

/* Room for more text; where it begins. SIZE_MAX: no memory. */
static size_t reserve(struct stk_pieces *pieces, size_t bytes)
{
    size_t at = pieces->text_bytes;

    if (pieces->text_capacity - at < bytes) {
        size_t capacity = stk_max(pieces->text_capacity * 2, at + bytes);
        void *grown;

        capacity = stk_max(capacity, 1024);
        grown = stk_realloc(pieces->text, pieces->text_capacity, capacity, 1);
        if (!grown) {
            return SIZE_MAX;
        }
        pieces->text = grown;
        pieces->text_capacity = capacity;
    }
    pieces->text_bytes += bytes;
    return at;
}

/* A new piece called KEY.EXTENSION (lower case). NULL: no memory. */
static struct stk_piece *add_piece(struct stk_pieces *pieces, uint32_t kind, struct stk_view key,
                                   const char *extension)
{
    size_t extension_bytes = strlen(extension), bytes = key.bytes + 1 + extension_bytes;
    size_t at = reserve(pieces, bytes + 1);
    struct stk_piece *piece;

    if (pieces->count == pieces->capacity) {
        size_t capacity = stk_max(8, pieces->capacity * 2);
        void *grown = stk_realloc(pieces->items, pieces->capacity, capacity, sizeof *pieces->items);
        if (!grown) {
            return NULL;
        }
        pieces->items = grown;
        pieces->capacity = capacity;
    }
    if (at == SIZE_MAX) {
        return NULL;
    }
    memcpy(pieces->text + at, key.data, key.bytes);
    pieces->text[at + key.bytes] = '.';
    for (size_t i = 0; i < extension_bytes; i++) {
        char letter = extension[i];
        pieces->text[at + key.bytes + 1 + i] =
            (char)(letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter);
    }
    pieces->text[at + bytes] = 0;
    piece = &pieces->items[pieces->count++];
    *piece = (struct stk_piece){
        .kind = kind, .name_at = at, .name_bytes = bytes, .key_bytes = key.bytes};
    return piece;
}

static bool is_picture(const char *extension)
{
    static const char *const pictures[] = {"jpg", "jpeg", "jpe", "jfif"};

    for (size_t i = 0; i < STK_COUNT(pictures); i++) {
        if (strcasecmp(extension, pictures[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Says why a folder's sample cannot be one of WebDataset's. */
static int check_names(const struct stk_pieces *pieces, const char *path,
                       struct stoker_error *error)
{
    for (size_t i = 0; i < pieces->count; i++) {
        struct stk_view name = stk_piece_name(pieces, &pieces->items[i]), key, extension;

        if (stk_name_refusal(name) || name.bytes > STK_TAR_NAME_MAX ||
            !stk_wds_split(name, &key, &extension) || key.bytes != pieces->items[i].key_bytes) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT,
                            "readers of WebDataset would pass over a file of this name",
                            "rename it or its folder: no __name__ in front", "'%.400s'",
                            path);
        }
        for (size_t j = 0; j < i; j++) {
            struct stk_view other = stk_piece_name(pieces, &pieces->items[j]);

            if (other.bytes == name.bytes && memcmp(other.data, name.data, name.bytes) == 0) {
                return stk_fail(error, STOKER_ERROR_ARGUMENT,
                                "two files of a sample would have one name",
                                "rename one: a class folder's own label is called .cls",
                                "'%.400s': '%.200s' comes twice", path, (const char *)name.data);
            }
        }
    }
    return 0;
}

/* The first sidecar of a sample, or of the next that has one. */
static uint64_t first_sidecar(const struct stk_plan *plan, uint64_t sample)
{
    uint64_t low = 0, high = plan->sidecar_count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (plan->sidecars[middle].sample < sample) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int folder_pieces(const struct stk_plan *plan, uint64_t number,
                         const struct stk_sample *sample, struct stk_pieces *pieces,
                         struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX], key_text[STK_PATH_BYTES_MAX], label[24];
    int status = stk_index_path(plan->dataset->index, sample->shard, path, error);
    size_t path_bytes = strlen(path), from, base = 0;
    const char *dot = strrchr(path, '.');
    size_t ending = dot ? path_bytes - (size_t)(dot - path) : 0; /* with its dot */
    struct stk_view key = {(const uint8_t *)key_text, sample->key.bytes - ending};
    struct stk_piece *piece;

    if (status < 0) {
        return status;
    }
    STK_ASSERT(sample->key.bytes > ending && sample->key.bytes < sizeof key_text);
    memcpy(key_text, sample->key.data, key.bytes);
    for (size_t i = 0; i < key.bytes; i++) {
        base = key_text[i] == '/' ? i + 1 : base;
    }
    for (size_t i = base; i < key.bytes; i++) {
        key_text[i] = (char)(key_text[i] == '.' ? '_' : key_text[i]);
    }
    piece = add_piece(pieces, STK_PIECE_FILE, key, is_picture(dot + 1) ? "jpg" : dot + 1);
    from = piece ? reserve(pieces, path_bytes + 1) : SIZE_MAX;
    if (from == SIZE_MAX) {
        return fail_memory(error);
    }
    memcpy(pieces->text + from, path, path_bytes + 1);
    piece->from_at = from;
    piece->bytes = plan->file_bytes[number];
    piece->picture = is_picture(dot + 1);

    piece = add_piece(pieces, STK_PIECE_TEXT, key, "cls");
    snprintf(label, sizeof label, "%lld", (long long)sample->label);
    from = piece ? reserve(pieces, sizeof label) : SIZE_MAX;
    if (from == SIZE_MAX) {
        return fail_memory(error);
    }
    memcpy(pieces->text + from, label, sizeof label);
    piece->from_at = from;
    piece->bytes = strlen(label);

    for (uint64_t i = first_sidecar(plan, number);
         i < plan->sidecar_count && plan->sidecars[i].sample == number; i++) {
        const char *extension = plan->text + plan->sidecars[i].at;
        size_t stem = path_bytes - ending + 1, bytes = strlen(extension) + 1;

        if (pieces->count >= STK_PIECES_MAX) {
            return stk_fail(error, STOKER_ERROR_LIMIT, "a sample has too many files",
                            "keep at most 4,096", "'%.400s'", path);
        }
        piece = add_piece(pieces, STK_PIECE_FILE, key, extension);
        from = piece ? reserve(pieces, stem + bytes) : SIZE_MAX;
        if (from == SIZE_MAX) {
            return fail_memory(error);
        }
        memcpy(pieces->text + from, path, stem);
        memcpy(pieces->text + from + stem, extension, bytes);
        piece->from_at = from;
        piece->bytes = plan->sidecars[i].bytes;
    }
    return check_names(pieces, path, error);
}

static int tar_pieces(const struct stk_plan *plan, const struct stk_sample *sample,
                      struct stk_pieces *pieces, struct stoker_error *error)
{
    const struct stk_index *index = plan->dataset->index;

    for (uint32_t i = 0; i < sample->member_count; i++) {
        struct stk_member member;
        struct stk_piece *piece;
        const char *extension;
        int status = stk_index_member(index, sample, i, &member, error);

        if (status < 0) {
            return status;
        }
        extension = stk_index_extension(index, member.extension);
        piece = add_piece(pieces, STK_PIECE_MEMBER, sample->key, extension);
        if (!piece) {
            return fail_memory(error);
        }
        if (pieces->count > STK_PIECES_MAX || piece->name_bytes > STK_TAR_NAME_MAX) {
            return stk_fail(error, STOKER_ERROR_LIMIT, "a sample has too many members",
                            "keep at most 4,096", "sample with %u members", sample->member_count);
        }
        piece->member = member;
        piece->bytes = member.bytes;
        piece->picture = is_picture(extension);
    }
    return 0;
}

int stk_plan_pieces(const struct stk_plan *plan, uint64_t sample, struct stk_pieces *pieces,
                    struct stoker_error *error)
{
    struct stk_sample found;
    int status = stk_index_sample(plan->dataset->index, sample, &found, error);

    pieces->count = pieces->text_bytes = 0;
    if (status < 0) {
        return status;
    }
    return plan->folder ? folder_pieces(plan, sample, &found, pieces, error)
                        : tar_pieces(plan, &found, pieces, error);
}

/* ---- the cut ---- */

/* Where a sample lies, for the error about two with one key. */
static void place_of(const struct stk_plan *plan, uint64_t sample, char *text, size_t capacity)
{
    struct stk_sample found;
    char path[STK_PATH_BYTES_MAX] = "?";

    if (stk_index_sample(plan->dataset->index, sample, &found, NULL) == 0) {
        (void)stk_index_path(plan->dataset->index, found.shard, path, NULL);
    }
    snprintf(text, capacity, "%.300s", path);
}

static int fail_twice(const struct stk_plan *plan, uint64_t position, struct stk_pieces *pieces,
                      struct stoker_error *error)
{
    uint64_t sample = stk_plan_sample(plan, position);
    char key[200], first[304] = "?", second[304];
    struct stk_pieces other = {0};
    struct stk_view name = stk_piece_name(pieces, &pieces->items[0]);

    name.bytes = pieces->items[0].key_bytes;
    stk_name_text(name, key, sizeof key);
    place_of(plan, sample, second, sizeof second);
    for (uint64_t i = 0; i < position; i++) {
        uint64_t before = stk_plan_sample(plan, i);

        if (stk_plan_pieces(plan, before, &other, NULL) == 0 && other.count > 0 &&
            other.items[0].key_bytes == name.bytes &&
            memcmp(other.text + other.items[0].name_at, name.data, name.bytes) == 0) {
            place_of(plan, before, first, sizeof first);
            break;
        }
    }
    stk_pieces_deinit(&other);
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "two samples would have one key",
                    "rename one of them: a key is the path without its extension",
                    "'%s': '%s' and '%s'", key, first, second);
}

/* Bytes that the sample takes in a tar. */
static uint64_t sample_bytes(const struct stk_pieces *pieces, uint64_t ratio_ppm)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < pieces->count; i++) {
        const struct stk_piece *piece = &pieces->items[i];
        uint64_t data = piece->bytes;

        if (piece->picture && ratio_ppm != PPM) {
            data = data / PPM * ratio_ppm + data % PPM * ratio_ppm / PPM;
        }
        bytes += stk_tar_member_bytes(stk_piece_name(pieces, piece), data);
    }
    return bytes;
}

static int begin_shard(struct stk_plan *plan, uint64_t position, uint64_t *capacity)
{
    if (plan->shard_count + 1 >= *capacity) { /* one more for the end */
        uint64_t grown_capacity = stk_max(64, *capacity * 2);
        void *grown = stk_realloc(plan->starts, *capacity, grown_capacity, sizeof *plan->starts);

        if (!grown) {
            return -ENOMEM;
        }
        plan->starts = grown;
        *capacity = grown_capacity;
    }
    plan->starts[plan->shard_count++] = position;
    return 0;
}

int stk_plan_cut(struct stk_plan *plan, uint64_t shard_bytes, uint64_t ratio_ppm,
                 const _Atomic bool *stop, struct stoker_error *error)
{
    struct stk_pieces pieces = {0};
    struct stk_keys keys = {0};
    uint64_t used = 0, capacity = 0;
    int status = 0;

    plan->shard_count = plan->bytes = 0;
    for (uint64_t i = 0; status == 0 && i < plan->sample_count; i++) {
        struct stk_view key;
        uint64_t bytes;

        status = stk_plan_pieces(plan, stk_plan_sample(plan, i), &pieces, error);
        if (status < 0) {
            break;
        }
        if (atomic_load_explicit(stop, memory_order_relaxed)) {
            status = fail_stopped(error);
            break;
        }
        STK_ASSERT(pieces.count > 0);
        key = stk_piece_name(&pieces, &pieces.items[0]);
        key.bytes = pieces.items[0].key_bytes;
        status = stk_keys_add(&keys, key);
        if (status <= 0) {
            status = status < 0 ? fail_memory(error) : fail_twice(plan, i, &pieces, error);
            break;
        }
        status = 0;
        bytes = sample_bytes(&pieces, ratio_ppm);
        if (i == 0 || used + bytes > shard_bytes) {
            status = begin_shard(plan, i, &capacity) < 0 ? fail_memory(error) : 0;
            used = STK_TAR_END_BYTES;
            plan->bytes += used;
        }
        used += bytes;
        plan->bytes += bytes;
    }
    if (status == 0) {
        plan->starts[plan->shard_count] = plan->sample_count;
    }
    stk_keys_deinit(&keys);
    stk_pieces_deinit(&pieces);
    return status;
}

/* ---- keys ---- */

static uint64_t *find_slot(const struct stk_keys *keys, const uint64_t hash[2])
{
    for (uint64_t at = hash[0];; at++) {
        uint64_t *slot = keys->slots[at & (keys->capacity - 1)];

        if ((slot[0] == hash[0] && slot[1] == hash[1]) || (slot[0] | slot[1]) == 0) {
            return slot;
        }
    }
}

static int grow(struct stk_keys *keys)
{
    struct stk_keys grown = {.count = keys->count, .capacity = stk_max(1024, keys->capacity * 2)};

    grown.slots = stk_alloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < keys->capacity; i++) {
        if ((keys->slots[i][0] | keys->slots[i][1]) != 0) {
            memcpy(find_slot(&grown, keys->slots[i]), keys->slots[i], sizeof keys->slots[i]);
        }
    }
    stk_free(keys->slots);
    *keys = grown;
    return 0;
}

int stk_keys_add(struct stk_keys *keys, struct stk_view key)
{
    struct stk_sha256 sha;
    uint64_t digest[4], *slot;

    if (2 * (keys->count + 1) > keys->capacity && grow(keys) < 0) {
        return -ENOMEM;
    }
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, key.data, key.bytes);
    stk_sha256_done(&sha, (uint8_t *)digest);
    digest[0] |= (digest[0] | digest[1]) == 0; /* zeros mark a free slot */
    slot = find_slot(keys, digest);
    if ((slot[0] | slot[1]) != 0) {
        return 0;
    }
    memcpy(slot, digest, 2 * sizeof *slot);
    keys->count++;
    return 1;
}

void stk_keys_deinit(struct stk_keys *keys)
{
    stk_free(keys->slots);
    *keys = (struct stk_keys){0};
}

static int fail_memory(struct stoker_error *error)
{
    return stk_fail(error, -ENOMEM, "no memory for the plan", "free memory", "plan");
}

static int fail_stopped(struct stoker_error *error)
{
    return stk_fail(error, -ECANCELED, "the packing was stopped", "run it again: it goes on",
                    "plan");
}
