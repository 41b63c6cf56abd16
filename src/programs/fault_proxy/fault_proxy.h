/* programs/fault_proxy/fault_proxy.h: a listening socket and its links, in one thread, by poll.
 *
 *   stk_fault_proxy_open -> listening --stk_fault_proxy_run--> until *stop
 *
 * Owner: main. Threads: one. Memory: the links. Bound: STK_FAULT_PROXY_CONNECTIONS_MAX; a client
 * beyond them waits in the kernel's queue. */
#ifndef PROGRAMS_FAULT_PROXY_FAULT_PROXY_H
#define PROGRAMS_FAULT_PROXY_FAULT_PROXY_H

#include "programs/fault_proxy/fault_connection.h"

#include <signal.h>

#define STK_FAULT_PROXY_CONNECTIONS_MAX 1024u

struct stk_fault_proxy { /* zeroed, with listener and world.folder -1: not open */
    struct stk_fault_config world;
    int listener;
    uint32_t links_max;
    struct stk_fault_connection **links; /* owned */
    size_t count;
    uint64_t numbers;
};

/* A host and port, "127.0.0.1:8080" or "[::1]:8080". The first address that the name has. */
int stk_fault_proxy_resolve(const char *place, struct sockaddr_storage *address_out,
                            socklen_t *bytes_out, struct stoker_error *error);
/* Listens; port 0: any. place_out: where, for people. proxy->world and links_max are set. */
int stk_fault_proxy_open(struct stk_fault_proxy *proxy, const char *place, char place_out[96],
                         struct stoker_error *error);
/* Until *stop is set by a signal's handler. */
int stk_fault_proxy_run(struct stk_fault_proxy *proxy, const volatile sig_atomic_t *stop,
                        struct stoker_error *error);
void stk_fault_proxy_close(struct stk_fault_proxy *proxy);
uint64_t stk_fault_proxy_clock_ns(void);

#endif
