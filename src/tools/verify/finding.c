/* Findings: stored compactly, returned as struct stoker_finding. */
#include "base/mem.h"
#include "tools/verify/verify.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SKIPPED_NAMED_MAX 1000u /* notes about skipped members; further ones are counted */

static const struct {
    uint32_t kind;
    const char *name, *text;
} kinds[] = {
#define X(number, kind, name, sentence) {number, name, sentence},
    STOKER_FINDINGS(X)
#undef X
};

const char *stoker_finding_name(uint32_t kind)
{
    return kind >= 1 && kind <= STK_COUNT(kinds) ? kinds[kind - 1].name : "unknown";
}

const char *stoker_finding_text(uint32_t kind)
{
    return kind >= 1 && kind <= STK_COUNT(kinds) ? kinds[kind - 1].text : "unknown";
}

bool stk_verify_finding_is_note(uint32_t kind)
{
    return kind == STOKER_FINDING_MISNAMED || kind == STOKER_FINDING_REINDEXED ||
           kind == STOKER_FINDING_UNPROVEN || kind == STOKER_FINDING_SKIPPED;
}

bool stk_verify_is_process_error(int status)
{
    return status == -ENOMEM || status == STOKER_ERROR_BUDGET || status == -EMFILE ||
           status == -ENFILE;
}

/* Appends the text and its NUL, truncated to the free space. Returns where the next text begins. */
static char *put(char *to, const char *text, size_t room)
{
    size_t bytes = strnlen(text, room - 1);

    memcpy(to, text, bytes);
    to[bytes] = '\0';
    return to + bytes + 1;
}

/* Returns the text after the place ("'path' offset 7: ..."), because the place would be
 * repeated. */
static const char *detail_of(const struct stoker_error *error)
{
    size_t bytes = strlen(error->shard);
    const char *behind;

    if (error->where[0] != '\'') {
        return error->where;
    }
    behind = bytes > 0 && strncmp(error->where + 1, error->shard, bytes) == 0
                 ? strstr(error->where + 1 + bytes, ": ")
                 : NULL;
    return behind ? behind + 2 : "";
}

int stk_verify_add_finding(struct stoker_verify *verify, struct stk_verify_findings *findings,
                           uint32_t kind, const struct stoker_error *error, const char *extension)
{
    const char *detail = detail_of(error);
    struct stk_verify_finding *finding;
    char what[sizeof((struct stoker_finding *)0)->what];
    char *at;

    snprintf(what, sizeof what, "%s%s%.200s", error->what, detail[0] ? ": " : "", detail);
    atomic_fetch_add_explicit(stk_verify_finding_is_note(kind) ? &verify->count.notes
                                                               : &verify->count.findings,
                              1, memory_order_relaxed);
    /* They must not take the places of damage. */
    if (kind == STOKER_FINDING_SKIPPED &&
        atomic_fetch_add_explicit(&verify->count.skipped, 1, memory_order_relaxed) >=
            SKIPPED_NAMED_MAX) {
        return 0;
    }
    if (atomic_fetch_add_explicit(&verify->count.listed, 1, memory_order_relaxed) >=
        verify->options.findings_max) {
        atomic_fetch_sub_explicit(&verify->count.listed, 1, memory_order_relaxed);
        return 0;
    }
    finding = stk_alloc(sizeof *finding + strlen(error->shard) + strlen(error->key) +
                            strlen(extension) + strlen(what) + strlen(error->advice) + 5,
                        1);
    if (!finding) {
        return -ENOMEM;
    }
    finding->kind = kind;
    finding->status = error->status;
    finding->offset = error->offset;
    at = put(finding->text, error->shard, sizeof error->shard);
    at = put(at, error->key, sizeof error->key);
    at = put(at, extension, sizeof((struct stoker_finding *)0)->extension);
    at = put(at, what, sizeof what);
    put(at, error->advice, sizeof error->advice);
    if (findings->last) {
        findings->last->next = finding;
    } else {
        findings->first = finding;
    }
    findings->last = finding;
    return 0;
}

void stk_verify_findings_deinit(struct stk_verify_findings *findings)
{
    while (findings->first) {
        struct stk_verify_finding *next = findings->first->next;

        stk_free(findings->first);
        findings->first = next;
    }
    findings->last = NULL;
}

void stk_verify_finding_move(struct stk_verify_finding *finding, struct stoker_finding *out)
{
    const char *at = finding->text;

    *out = (struct stoker_finding){.kind = finding->kind,
                                   .status = finding->status,
                                   .note = stk_verify_finding_is_note(finding->kind),
                                   .offset = finding->offset};
    put(out->shard, at, sizeof out->shard);
    at += strlen(at) + 1;
    put(out->key, at, sizeof out->key);
    at += strlen(at) + 1;
    put(out->extension, at, sizeof out->extension);
    at += strlen(at) + 1;
    put(out->what, at, sizeof out->what);
    at += strlen(at) + 1;
    put(out->advice, at, sizeof out->advice);
    stk_free(finding);
}
