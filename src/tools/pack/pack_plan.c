/* Lists the pieces of a sample, and splits samples into shards. */
#include "tools/pack/pack_plan.h"

#include "base/crypto/key_set.h"
#include "base/mem.h"
#include "format/tar/tar_write.h"
#include "format/tar/wds_name.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PPM 1000000u

int stk_pack_plan_open(struct stk_pack_plan *plan, struct stoker_dataset *dataset, uint32_t shuffle,
                       uint64_t seed, const _Atomic bool *stop, struct stoker_error *error)
{
    struct stk_order_options order = {.block_samples = 1,
                                      .window_blocks = 1,
                                      .group_count = 1,
                                      .shuffle = STOKER_SHUFFLE_FULL,
                                      .version = 1, /* the bytes of a pack do not change */
                                      .seed = seed};
    int status;

    *plan = (struct stk_pack_plan){.dataset = dataset, .shuffled = shuffle == STOKER_SHUFFLE_FULL};
    plan->folder = dataset->objects.kind == STK_SOURCE_FOLDER;
    plan->sample_count = order.sample_count = stk_index_samples(dataset->index);
    if (plan->sample_count == 0) {
        return stk_fail(error, STOKER_ERROR_EMPTY, "the source has no samples",
                        "check what the file is", "'%.400s'", dataset->options.urls[0]);
    }
    if (plan->shuffled && stk_index_is_sequential(dataset->index)) {
        return stk_fail(
            error, STOKER_ERROR_UNSUPPORTED,
            "compressed shards can only be read front to back, not shuffled",
            "run 'stoker index --seek-points' on them first, or pack them with --keep-order, "
            "then pack the result",
            "'%.400s'", dataset->options.urls[0]);
    }
    status = stk_foreign_index_require_verified(dataset->index, error);
    status = status < 0 ? status : stk_order_init(&plan->order, &order, error);
    if (status == 0) {
        stk_order_epoch_begin(&plan->epoch, &plan->order, 0);
        status = stk_pack_survey_run(plan, stop, error);
    }
    if (status < 0) {
        stk_pack_plan_close(plan);
    }
    return status;
}

void stk_pack_plan_close(struct stk_pack_plan *plan)
{
    stk_free(plan->file_bytes);
    stk_free(plan->sidecars);
    stk_free(plan->text);
    stk_free(plan->starts);
    *plan = (struct stk_pack_plan){0};
}

uint64_t stk_pack_plan_sample(const struct stk_pack_plan *plan, uint64_t position)
{
    return plan->shuffled ? stk_order_sample(&plan->epoch, position) : position;
}

/* ---- the pieces of a sample ---- */

void stk_pack_pieces_deinit(struct stk_pack_pieces *pieces)
{
    stk_free(pieces->items);
    stk_free(pieces->text);
    *pieces = (struct stk_pack_pieces){0};
}

/* Makes room for more text. Returns where it begins; SIZE_MAX if there is not enough memory. */
static size_t reserve(struct stk_pack_pieces *pieces, size_t bytes)
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

/* Adds a new piece named KEY.EXTENSION (lower case). Returns NULL if there is not enough memory. */
static struct stk_pack_piece *add_piece(struct stk_pack_pieces *pieces, uint32_t kind,
                                        struct stk_view key, const char *extension)
{
    size_t extension_bytes = strlen(extension), bytes = key.bytes + 1 + extension_bytes;
    size_t at = reserve(pieces, bytes + 1);
    struct stk_pack_piece *piece;

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
    *piece = (struct stk_pack_piece){
        .kind = kind, .name_at = at, .name_bytes = bytes, .key_bytes = key.bytes};
    return piece;
}

/* Adds a piece whose bytes are already in memory. */
static int add_text(struct stk_pack_pieces *pieces, struct stk_view key, const char *extension,
                    const char *text, size_t bytes)
{
    struct stk_pack_piece *piece = add_piece(pieces, STK_PACK_PIECE_TEXT, key, extension);
    size_t from = piece ? reserve(pieces, bytes + 1) : SIZE_MAX;

    if (from == SIZE_MAX) {
        return -ENOMEM;
    }
    memcpy(pieces->text + from, text, bytes);
    pieces->text[from + bytes] = 0;
    piece->from_at = from;
    piece->bytes = bytes;
    return 0;
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

/* Reports why a folder's sample cannot be a WebDataset sample. */
static int check_names(const struct stk_pack_pieces *pieces, const char *path,
                       struct stoker_error *error)
{
    for (size_t i = 0; i < pieces->count; i++) {
        struct stk_view name = stk_pack_piece_name(pieces, &pieces->items[i]), key, extension;

        if (stk_wds_name_error(name) || name.bytes > STK_TAR_NAME_MAX ||
            !stk_wds_name_split(name, &key, &extension) ||
            key.bytes != pieces->items[i].key_bytes) {
            return stk_fail(
                error, STOKER_ERROR_ARGUMENT, "readers of WebDataset skip files of this name",
                "rename it or its folder: no __name__ at the beginning", "'%.400s'", path);
        }
        for (size_t j = 0; j < i; j++) {
            struct stk_view other = stk_pack_piece_name(pieces, &pieces->items[j]);

            if (other.bytes == name.bytes && memcmp(other.data, name.data, name.bytes) == 0) {
                return stk_fail(error, STOKER_ERROR_ARGUMENT,
                                "two files of a sample would have one name",
                                "rename one: the label of a class folder is called .cls, and a "
                                "line of metadata.jsonl .json",
                                "'%.400s': '%.200s' occurs twice", path, (const char *)name.data);
            }
        }
    }
    return 0;
}

/* Returns the first sidecar of a sample, or of the next sample that has one. */
static uint64_t first_sidecar(const struct stk_pack_plan *plan, uint64_t sample)
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

static int folder_pieces(const struct stk_pack_plan *plan, uint64_t number,
                         const struct stk_sample *sample, struct stk_pack_pieces *pieces,
                         struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX], key_text[STK_PATH_BYTES_MAX], label[24];
    int status = stk_index_path(plan->dataset->index, sample->shard, path, error);
    size_t path_bytes = strlen(path), from, base = 0;
    const char *dot = strrchr(path, '.');
    size_t ending = dot ? path_bytes - (size_t)(dot - path) : 0; /* with its dot */
    struct stk_view key = {(const uint8_t *)key_text, sample->key.bytes - ending};
    struct stk_pack_piece *piece;

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
    piece = add_piece(pieces, STK_PACK_PIECE_FILE, key, is_picture(dot + 1) ? "jpg" : dot + 1);
    from = piece ? reserve(pieces, path_bytes + 1) : SIZE_MAX;
    if (from == SIZE_MAX) {
        return stk_fail_memory(error, "pack plan");
    }
    memcpy(pieces->text + from, path, path_bytes + 1);
    piece->from_at = from;
    piece->bytes = plan->file_bytes[number];
    piece->picture = is_picture(dot + 1);

    snprintf(label, sizeof label, "%lld", (long long)sample->label);
    if (sample->label >= 0 && add_text(pieces, key, "cls", label, strlen(label)) < 0) {
        return stk_fail_memory(error, "pack plan");
    }
    for (uint64_t i = first_sidecar(plan, number);
         i < plan->sidecar_count && plan->sidecars[i].sample == number; i++) {
        const char *extension = plan->text + plan->sidecars[i].at;
        size_t stem = path_bytes - ending + 1, bytes = strlen(extension) + 1;

        if (pieces->count >= STK_PACK_PIECES_MAX) {
            return stk_fail(error, STOKER_ERROR_LIMIT, "a sample has too many files",
                            "keep at most 4,096", "'%.400s'", path);
        }
        if (plan->sidecars[i].is_line) {
            if (add_text(pieces, key, extension, extension + bytes, plan->sidecars[i].bytes) < 0) {
                return stk_fail_memory(error, "pack plan");
            }
            continue;
        }
        piece = add_piece(pieces, STK_PACK_PIECE_FILE, key, extension);
        from = piece ? reserve(pieces, stem + bytes) : SIZE_MAX;
        if (from == SIZE_MAX) {
            return stk_fail_memory(error, "pack plan");
        }
        memcpy(pieces->text + from, path, stem);
        memcpy(pieces->text + from + stem, extension, bytes);
        piece->from_at = from;
        piece->bytes = plan->sidecars[i].bytes;
    }
    return check_names(pieces, path, error);
}

static int tar_pieces(const struct stk_pack_plan *plan, const struct stk_sample *sample,
                      struct stk_pack_pieces *pieces, struct stoker_error *error)
{
    const struct stk_index *index = plan->dataset->index;

    for (uint32_t i = 0; i < sample->member_count; i++) {
        struct stk_member member;
        struct stk_pack_piece *piece;
        const char *extension;
        int status = stk_index_member(index, sample, i, &member, error);

        if (status < 0) {
            return status;
        }
        extension = stk_index_extension(index, member.extension);
        piece = add_piece(pieces, STK_PACK_PIECE_MEMBER, sample->key, extension);
        if (!piece) {
            return stk_fail_memory(error, "pack plan");
        }
        if (pieces->count > STK_PACK_PIECES_MAX || piece->name_bytes > STK_TAR_NAME_MAX) {
            return stk_fail(error, STOKER_ERROR_LIMIT, "a sample has too many members",
                            "keep at most 4,096", "sample with %u members", sample->member_count);
        }
        piece->member = member;
        piece->bytes = member.bytes;
        piece->picture = is_picture(extension);
    }
    return 0;
}

int stk_pack_plan_pieces(const struct stk_pack_plan *plan, uint64_t sample,
                         struct stk_pack_pieces *pieces, struct stoker_error *error)
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

/* The place of a sample, for the error about two with one key. */
static void describe_location(const struct stk_pack_plan *plan, uint64_t sample, char *text,
                              size_t capacity)
{
    struct stk_sample found;
    char path[STK_PATH_BYTES_MAX] = "?";

    if (stk_index_sample(plan->dataset->index, sample, &found, NULL) == 0) {
        (void)stk_index_path(plan->dataset->index, found.shard, path, NULL);
    }
    snprintf(text, capacity, "%.300s", path);
}

static int fail_duplicate_key(const struct stk_pack_plan *plan, uint64_t position,
                              struct stk_pack_pieces *pieces, struct stoker_error *error)
{
    uint64_t sample = stk_pack_plan_sample(plan, position);
    char key[200], first[304] = "?", second[304];
    struct stk_pack_pieces other = {0};
    struct stk_view name = stk_pack_piece_name(pieces, &pieces->items[0]);

    name.bytes = pieces->items[0].key_bytes;
    stk_wds_name_text(name, key, sizeof key);
    describe_location(plan, sample, second, sizeof second);
    for (uint64_t i = 0; i < position; i++) {
        uint64_t before = stk_pack_plan_sample(plan, i);

        if (stk_pack_plan_pieces(plan, before, &other, NULL) == 0 && other.count > 0 &&
            other.items[0].key_bytes == name.bytes &&
            memcmp(other.text + other.items[0].name_at, name.data, name.bytes) == 0) {
            describe_location(plan, before, first, sizeof first);
            break;
        }
    }
    stk_pack_pieces_deinit(&other);
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "two samples would have one key",
                    "rename one of them: a key is the path without its extension",
                    "'%s': '%s' and '%s'", key, first, second);
}

/* Returns the number of bytes that the sample takes in a tar. */
static uint64_t sample_bytes(const struct stk_pack_pieces *pieces, uint64_t ratio_ppm)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < pieces->count; i++) {
        const struct stk_pack_piece *piece = &pieces->items[i];
        uint64_t data = piece->bytes;

        if (piece->picture && ratio_ppm != PPM) {
            data = data / PPM * ratio_ppm + data % PPM * ratio_ppm / PPM;
        }
        bytes += stk_tar_member_bytes(stk_pack_piece_name(pieces, piece), data);
    }
    return bytes;
}

static int begin_shard(struct stk_pack_plan *plan, uint64_t position, uint64_t *capacity)
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

int stk_pack_plan_split(struct stk_pack_plan *plan, uint64_t shard_bytes, uint64_t ratio_ppm,
                        const _Atomic bool *stop, struct stoker_error *error)
{
    struct stk_pack_pieces pieces = {0};
    struct stk_key_set keys = {0};
    uint64_t used = 0, capacity = 0;
    int status = 0;

    plan->shard_count = plan->bytes = 0;
    for (uint64_t i = 0; status == 0 && i < plan->sample_count; i++) {
        struct stk_view key;
        uint64_t bytes;

        status = stk_pack_plan_pieces(plan, stk_pack_plan_sample(plan, i), &pieces, error);
        if (status < 0) {
            break;
        }
        if (atomic_load_explicit(stop, memory_order_relaxed)) {
            status = stk_pack_plan_fail_stopped(error);
            break;
        }
        STK_ASSERT(pieces.count > 0);
        key = stk_pack_piece_name(&pieces, &pieces.items[0]);
        key.bytes = pieces.items[0].key_bytes;
        status = stk_key_set_add(&keys, key);
        if (status <= 0) {
            status = status < 0 ? stk_fail_memory(error, "pack plan")
                                : fail_duplicate_key(plan, i, &pieces, error);
            break;
        }
        status = 0;
        bytes = sample_bytes(&pieces, ratio_ppm);
        if (i == 0 || used + bytes > shard_bytes) {
            status = begin_shard(plan, i, &capacity) < 0 ? stk_fail_memory(error, "pack plan") : 0;
            used = STK_TAR_END_BYTES;
            plan->bytes += used;
        }
        used += bytes;
        plan->bytes += bytes;
    }
    if (status == 0) {
        plan->starts[plan->shard_count] = plan->sample_count;
    }
    stk_key_set_deinit(&keys);
    stk_pack_pieces_deinit(&pieces);
    return status;
}
