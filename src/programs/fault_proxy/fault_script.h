/* programs/fault_proxy/fault_script.h: which request meets which fault: rules out of a JSON file.
 *
 *   text --stk_fault_script_open--> rules --stk_fault_script_choose--> a rule, or none
 *
 * The first rule whose patterns fit and whose turn it is applies; later ones neither see nor count
 * the request. Chance is a function of (seed, the rule's own seed or else its number, how many
 * requests fitted the rule so far), so a script does the same to the same requests again.
 * Owner: the proxy. Threads: one. Memory: the parsed JSON, which lends its strings, and the rules.
 * Bound: STK_FAULT_SCRIPT_BYTES_MAX, STK_FAULT_RULES_MAX. */
#ifndef PROGRAMS_FAULT_PROXY_FAULT_SCRIPT_H
#define PROGRAMS_FAULT_PROXY_FAULT_SCRIPT_H

#include "programs/fault_proxy/fault_wire.h"

#include <jansson.h>

#define STK_FAULT_SCRIPT_BYTES_MAX (1u << 20)
#define STK_FAULT_RULES_MAX 1024u
#define STK_FAULT_BEFORE INT64_MIN /* at: before a byte of the request went on */

/* What becomes of an exchange: number, name, whether it is an answer of ours, for which nobody else
 * is asked; and what it does, for --help. */
/* clang-format off */
#define STK_FAULTS(each)                                                                           \
    each(PASS, "pass", false, "nothing but delay_ms, rate and headers")                            \
    each(DELAY, "delay", false, "the first byte comes delay_ms later (1000)")                      \
    each(SLOW, "slow", false, "rate bytes a second (1), from body byte `at` on")                   \
    each(SLOW_READ, "slow-read", false, "the request's body is read at rate bytes a second (1)")   \
    each(RESET, "reset", false, "the connection is reset")                                         \
    each(STALL, "stall", false, "nothing more comes, for ms (until the client leaves)")            \
    each(TRUNCATE, "truncate", false, "the connection ends")                                       \
    each(CLOSE, "close", false, "a whole answer, then the end of the connection, unannounced")     \
    each(STATUS, "status", true, "S3's answer for status (503) with code; retry_after")            \
    each(ANSWER, "answer", true, "status (200), headers and body as given")                        \
    each(ERROR_BODY, "error-body", true, "200 and an S3 error with code (InternalError) as body")  \
    each(WRONG_RANGE, "wrong-range", false, "Content-Range names other bytes than it sends")       \
    each(NO_RANGE, "no-range", false, "200 with all bytes where a range was asked for")            \
    each(SWAP, "swap", false, "the answer to `with`, another path; without it, other bytes")       \
    each(FLIP, "flip", false, "one bit of body byte `at` (0) is another")                          \
    each(CHECKSUM, "checksum", false, "checksum headers tell of other bytes")                      \
    each(ETAG, "etag", false, "another ETag: value")                                               \
    each(REDIRECT, "redirect", true, "status (307) to value (a link-local address)")               \
    each(EXPIRED, "expired", true, "S3's answer to an expired token")                              \
    each(SKEW, "skew", false, "Date is wrong by seconds (-3600)")                                  \
    each(TOO_SKEWED, "too-skewed", true, "403 RequestTimeTooSkewed, Date off by seconds (3600)")   \
    each(ENDLESS_LIST, "endless-list", true, "S3 lists that go on for ever, with new keys")        \
    each(STUCK_LIST, "stuck-list", true, "S3 lists that go on for ever, with the same keys")       \
    each(XML_BOMB, "xml-bomb", true, "a list whose entities unfold to gigabytes")                  \
    each(DEEP_XML, "deep-xml", true, "a list that is nested 100,000 deep")                         \
    each(ENDLESS_HEAD, "endless-head", true, "headers without an end")                             \
    each(ENDLESS_BODY, "endless-body", true, "chunks without an end")                              \
    each(ENDLESS_INTERIM, "endless-interim", true, "100 Continue without an end")                  \
    each(RAW, "raw", true, "body and nothing else, and the end of the connection")                 \
    each(GARBAGE, "garbage", true, "bytes that are no HTTP")
/* clang-format on */

enum stk_fault_kind {
#define STK_FAULT_ENUM(number, name, ours, does) STK_FAULT_##number,
    STK_FAULTS(STK_FAULT_ENUM)
#undef STK_FAULT_ENUM
        STK_FAULT_COUNT
};

struct stk_fault_rule {
    /* Which requests. Strings are lent by the script; NULL: any. */
    const char *name, *method, *path, *query;
    uint32_t range;                                       /* 0: any; 1: with a Range; 2: without */
    uint64_t nth, from, every, count, after_ms, until_ms; /* 0: any */
    double probability;
    uint64_t seed; /* of chance, in place of the rule's number; 0: none */
    /* What becomes of them. */
    uint32_t fault; /* enum stk_fault_kind */
    int64_t at;     /* body bytes that pass before; -1: no byte of the answer passes */
    uint64_t status, retry_after, delay_ms, rate, ms;
    int64_t seconds;
    const char *code, *body, *value, *with;
    json_t *headers;      /* name -> value; lent; NULL: none */
    uint64_t seen, fired; /* so far */
};

struct stk_fault_script { /* zeroed: no rules */
    json_t *root;
    struct stk_fault_rule *rules;
    size_t count;
    uint64_t seed;
};

/* What a rule may look at. */
struct stk_fault_request {
    const char *method, *path, *query; /* the query without '?' */
    bool range;
    uint64_t now_ms; /* since the start */
};

int stk_fault_script_open(struct stk_fault_script *script, struct stk_view text,
                          struct stoker_error *error);
void stk_fault_script_deinit(struct stk_fault_script *script);
/* Counts the request; the rule it meets, or NULL. Lent until deinit. */
struct stk_fault_rule *stk_fault_script_choose(struct stk_fault_script *script,
                                               const struct stk_fault_request *request);
bool stk_fault_is_answer(uint32_t fault);
/* The name, and what it does. */
const char *stk_fault_name(uint32_t fault, const char **does_out);

#endif
