/* programs/fault_proxy/fault_proxy.h: a listening socket and its connections, in one thread, by
 * poll.
 *
 *   stk_fault_proxy_open -> listening --stk_fault_proxy_run--> until *stop
 *
 * Owner: main. Threads: one. Memory: the connections. Bound: STK_FAULT_PROXY_CONNECTIONS_MAX;
 * further clients wait in the kernel's queue. */
#ifndef PROGRAMS_FAULT_PROXY_FAULT_PROXY_H
#define PROGRAMS_FAULT_PROXY_FAULT_PROXY_H

#include "programs/fault_proxy/fault_connection.h"

#include <signal.h>

#define STK_FAULT_PROXY_CONNECTIONS_MAX 1024u

struct stk_fault_proxy { /* zeroed, with listener and config.folder -1: not open */
    struct stk_fault_config config;
    int listener;
    uint32_t connections_max;
    struct stk_fault_connection **connections; /* owned */
    size_t count;
    uint64_t numbers;
};

/* Resolves "127.0.0.1:8080" or "[::1]:8080" to the first address of the host. Returns 0 on
 * success, or a negative status. */
int stk_fault_proxy_resolve(const char *place, struct sockaddr_storage *address_out,
                            socklen_t *bytes_out, struct stoker_error *error);
/* Listens; port 0: any. place_out: the address, as text. proxy->config and links_max must be
 * set. Returns 0 on success, or a negative status. */
int stk_fault_proxy_open(struct stk_fault_proxy *proxy, const char *place, char place_out[96],
                         struct stoker_error *error);
/* Runs until a signal handler sets *stop. Returns 0 on success, or a negative status. */
int stk_fault_proxy_run(struct stk_fault_proxy *proxy, const volatile sig_atomic_t *stop,
                        struct stoker_error *error);
void stk_fault_proxy_close(struct stk_fault_proxy *proxy);
uint64_t stk_fault_proxy_clock_ns(void);

#endif
