/* programs/fault_proxy/fault_script.h: rules of a JSON file that assign faults to requests.
 *
 *   text --stk_fault_script_open--> rules --stk_fault_script_choose--> a rule, or none
 *
 * The first rule that matches and is due applies; later rules do not count the request. Probability
 * is a function of (seed, the rule's seed or else its number, the number of requests that matched
 * the rule), so that a script is reproducible for the same requests.
 * Owner: the proxy. Threads: one. Memory: the parsed JSON, which owns all strings, and the rules.
 * Bound: STK_FAULT_SCRIPT_BYTES_MAX, STK_FAULT_RULES_MAX. */
#ifndef PROGRAMS_FAULT_PROXY_FAULT_SCRIPT_H
#define PROGRAMS_FAULT_PROXY_FAULT_SCRIPT_H

#include "programs/fault_proxy/fault_wire.h"

#include <jansson.h>

#define STK_FAULT_SCRIPT_BYTES_MAX (1u << 20)
#define STK_FAULT_RULES_MAX 1024u
#define STK_FAULT_BEFORE INT64_MIN /* at: before any byte of the request is forwarded */

/* Faults: number, name, whether the proxy answers instead of the server, and a description for
 * --help. */
/* clang-format off */
#define STK_FAULTS(each)                                                                           \
    each(PASS, "pass", false, "only delay_ms, rate and headers")                                   \
    each(DELAY, "delay", false, "delays the first byte by delay_ms (1000)")                        \
    each(SLOW, "slow", false, "sends rate bytes a second (1) from body byte `at` on")              \
    each(SLOW_READ, "slow-read", false, "reads the request's body at rate (1)")                    \
    each(RESET, "reset", false, "resets the connection")                                           \
    each(STALL, "stall", false, "sends nothing for ms (default: until the client closes)")         \
    each(TRUNCATE, "truncate", false, "closes the connection")                                     \
    each(CLOSE, "close", false, "closes after a complete response")                                \
    each(STATUS, "status", true, "S3's response for status (503) with code; retry_after")          \
    each(ANSWER, "answer", true, "a response of status (200), headers and body")                   \
    each(ERROR_BODY, "error-body", true, "200 and an S3 error with code (InternalError) as body")  \
    each(WRONG_RANGE, "wrong-range", false, "Content-Range names other bytes than it sends")       \
    each(NO_RANGE, "no-range", false, "responds to a range with 200 and all bytes")                \
    each(SWAP, "swap", false, "the response of path `with`; without it, other bytes")              \
    each(FLIP, "flip", false, "flips one bit of body byte `at` (0)")                               \
    each(CHECKSUM, "checksum", false, "checksum headers of other bytes")                           \
    each(ETAG, "etag", false, "another ETag: value")                                               \
    each(REDIRECT, "redirect", true, "status (307) to value (a link-local address)")               \
    each(EXPIRED, "expired", true, "S3's response to an expired token")                            \
    each(SKEW, "skew", false, "Date is wrong by seconds (-3600)")                                  \
    each(TOO_SKEWED, "too-skewed", true, "403 RequestTimeTooSkewed, Date off by seconds (3600)")   \
    each(ENDLESS_LIST, "endless-list", true, "S3 lists without an end, with new keys")             \
    each(STUCK_LIST, "stuck-list", true, "S3 lists without an end, with the same keys")            \
    each(XML_BOMB, "xml-bomb", true, "a list whose entities expand to gigabytes")                  \
    each(DEEP_XML, "deep-xml", true, "a list that is nested 100,000 deep")                         \
    each(ENDLESS_HEAD, "endless-head", true, "headers without an end")                             \
    each(ENDLESS_BODY, "endless-body", true, "chunks without an end")                              \
    each(ENDLESS_INTERIM, "endless-interim", true, "100 Continue without an end")                  \
    each(RAW, "raw", true, "sends only body, without a head, and closes")                          \
    each(GARBAGE, "garbage", true, "bytes that are no HTTP")
/* clang-format on */

enum stk_fault_kind {
#define STK_FAULT_ENUM(number, name, ours, does) STK_FAULT_##number,
    STK_FAULTS(STK_FAULT_ENUM)
#undef STK_FAULT_ENUM
        STK_FAULT_COUNT
};

struct stk_fault_rule {
    /* Conditions. The script owns all strings; NULL: any. */
    const char *name, *method, *path, *query;
    uint32_t range;                                       /* 0: any; 1: with a Range; 2: without */
    uint64_t nth, from, every, count, after_ms, until_ms; /* 0: any */
    double probability;
    uint64_t seed; /* of the probability, in place of the rule's number; 0: none */
    /* Effect. */
    uint32_t fault; /* enum stk_fault_kind */
    int64_t at;     /* body bytes before the fault; -1: no byte of the response */
    uint64_t status, retry_after, delay_ms, rate, ms;
    int64_t seconds;
    const char *code, *body, *value, *with;
    json_t *headers;      /* name -> value; borrowed; NULL: none */
    uint64_t seen, fired; /* so far */
};

struct stk_fault_script { /* zeroed: no rules */
    json_t *root;
    struct stk_fault_rule *rules;
    size_t count;
    uint64_t seed;
};

/* Properties of a request that rules match. */
struct stk_fault_request {
    const char *method, *path, *query; /* the query without '?' */
    bool range;
    uint64_t now_ms; /* since the start */
};

int stk_fault_script_open(struct stk_fault_script *script, struct stk_view text,
                          struct stoker_error *error);
void stk_fault_script_deinit(struct stk_fault_script *script);
/* Counts the request. Returns its rule, valid until deinit, or NULL. */
struct stk_fault_rule *stk_fault_script_choose(struct stk_fault_script *script,
                                               const struct stk_fault_request *request);
bool stk_fault_is_answer(uint32_t fault);
/* Returns the name of a fault and sets *does_out to its description. */
const char *stk_fault_name(uint32_t fault, const char **does_out);

#endif
