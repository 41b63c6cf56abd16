/* programs/fault_proxy/fault_proxy.h: a listening socket and its links, in one thread, by poll.
 *
 *   stk_proxy_open -> listening --stk_proxy_run--> until *stop
 *
 * Owner: main. Threads: one. Memory: the links. Bound: STK_PROXY_LINKS_MAX; a client beyond them
 * waits in the kernel's queue. */
#ifndef PROGRAMS_FAULT_PROXY_FAULT_PROXY_H
#define PROGRAMS_FAULT_PROXY_FAULT_PROXY_H

#include "programs/fault_proxy/fault_connection.h"

#include <signal.h>

#define STK_PROXY_LINKS_MAX 1024u

struct stk_proxy { /* zeroed, with listener and world.folder -1: not open */
    struct stk_link_world world;
    int listener;
    uint32_t links_max;
    struct stk_link **links; /* owned */
    size_t count;
    uint64_t numbers;
};

/* A host and port, "127.0.0.1:8080" or "[::1]:8080". The first address that the name has. */
int stk_proxy_resolve(const char *place, struct sockaddr_storage *address_out, socklen_t *bytes_out,
                      struct stoker_error *error);
/* Listens; port 0: any. place_out: where, for people. proxy->world and links_max are set. */
int stk_proxy_open(struct stk_proxy *proxy, const char *place, char place_out[96],
                   struct stoker_error *error);
/* Until *stop is set by a signal's handler. */
int stk_proxy_run(struct stk_proxy *proxy, const volatile sig_atomic_t *stop,
                  struct stoker_error *error);
void stk_proxy_close(struct stk_proxy *proxy);
uint64_t stk_proxy_clock_ns(void);

#endif
