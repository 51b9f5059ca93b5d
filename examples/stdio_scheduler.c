/* A complete scheduler behind preempt-oracle's adapter protocol, in C99 with POSIX getline and no library.
 *
 *     cc -std=c99 -O1 -o scheduler stdio_scheduler.c
 *     preempt-oracle conform --stdio './scheduler' --policy vllm-fcfs                   # conforms
 *     preempt-oracle conform --stdio './scheduler --faulty' --policy vllm-fcfs          # breaks victim/reset
 *
 * The protocol: one JSON object per line on stdin, exactly one answer line on stdout with the same "id". Commands are
 * start, add, abort, step, deliver and stop (control, too, which this scheduler refuses); see adapters/schema.py.
 *
 * The policy is "vllm-fcfs" without a prefix cache, one frame at a time: running requests grow in order, the LAST
 * running request is the victim, a victim goes to the FRONT of the waiting queue and is computed again later, and nobody
 * is admitted in a step that preempted somebody.
 *
 * The fault behind --faulty is one that engines have shipped: a victim's blocks are freed, and its count of computed
 * tokens is not set back, so that it would go on where it was, over KV that is somebody else's by then.
 */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- JSON: what the protocol needs of it, and strict about that --------------------------------------------------- */

typedef struct Value {
    enum { NIL, BOOL, INT, TEXT, LIST, OBJECT } kind;
    long long number;           /* of INT and BOOL */
    char *text, *key;           /* as they were written, escapes included: we only compare them and repeat them */
    struct Value *first, *next; /* members; the next member of the same parent */
    struct Value *made;         /* all values of a line, to free them with it */
} Value;

static Value *made;
static char answer_id[32]; /* of the command in hand, as JSON */

/* What is no command of this protocol is answered once, and ends the process with 3: "harness broken". */
static void protocol_error(const char *what) {
    printf("{\"id\":%s,\"event\":\"engine_error\",\"origin\":\"protocol\",\"kind\":\"ProtocolError\","
           "\"message\":\"%s\",\"where\":\"\"}\n", answer_id, what);
    fflush(stdout);
    exit(3);
}

static void *grown(void *memory, size_t count, size_t size) {
    memory = realloc(memory, (count ? count : 1) * size);
    if (!memory) {
        fputs("out of memory\n", stderr);
        exit(70); /* the harness says that we ended without an answer */
    }
    return memory;
}

static char *spaces(char *p) {
    while (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n') p++;
    return p;
}

/* A string in place: its closing quote becomes its end. Returns what comes behind it. */
static char *string(char *p, char **text) {
    if (*p != '"') protocol_error("not a line of JSON: a string was expected");
    for (*text = ++p; *p != '"'; p++) {
        if ((unsigned char)*p < ' ') protocol_error("not a line of JSON: a string does not end");
        if (*p != '\\') continue;
        if (!*++p || !strchr("\"\\/bfnrtu", *p)) protocol_error("not a line of JSON: no such escape");
        for (int i = *p == 'u' ? 4 : 0; i > 0; i--)
            if (!isxdigit((unsigned char)*++p)) protocol_error("not a line of JSON: no such escape");
    }
    *p = '\0';
    return p + 1;
}

static char *value(char *p, Value **out, int depth);

static char *members(char *p, Value *parent, char close, int depth) {
    Value **last = &parent->first;
    if (*(p = spaces(p)) == close) return p + 1;
    for (;; p = spaces(p + 1)) {
        char *key = NULL;
        if (close == '}') {
            p = spaces(string(p, &key));
            for (Value *m = parent->first; m; m = m->next)
                if (!strcmp(m->key, key)) protocol_error("a key occurs twice in one object");
            if (*p++ != ':') protocol_error("not a line of JSON: ':' was expected");
        }
        p = spaces(value(p, last, depth + 1));
        (*last)->key = key;
        last = &(*last)->next;
        if (*p == close) return p + 1;
        if (*p != ',') protocol_error("not a line of JSON: ',' was expected");
    }
}

static char *value(char *p, Value **out, int depth) {
    static const char *const words[] = {"null", "false", "true"};
    Value *v = *out = grown(NULL, 1, sizeof *v);
    memset(v, 0, sizeof *v);
    v->made = made;
    made = v;
    if (depth > 32) protocol_error("nested too deeply");
    p = spaces(p);
    if (*p == '{' || *p == '[') {
        v->kind = *p == '{' ? OBJECT : LIST;
        return members(p + 1, v, *p == '{' ? '}' : ']', depth);
    }
    if (*p == '"') {
        v->kind = TEXT;
        return string(p, &v->text);
    }
    for (int i = 0; i < 3; i++)
        if (!strncmp(p, words[i], strlen(words[i]))) {
            v->kind = i ? BOOL : NIL;
            v->number = i == 2;
            return p + strlen(words[i]);
        }
    const char *digits = *p == '-' ? p + 1 : p;
    if (!isdigit((unsigned char)*digits) || (*digits == '0' && isdigit((unsigned char)digits[1])))
        protocol_error("not a line of JSON");
    errno = 0;
    v->kind = INT;
    v->number = strtoll(p, &p, 10);
    if (errno || (*p && strchr(".eE", *p))) protocol_error("only whole numbers of 64 bits are understood here");
    return p;
}

static const Value *member(const Value *object, const char *key) {
    for (const Value *m = object->first; m; m = m->next)
        if (!strcmp(m->key, key)) return m;
    return NULL;
}

static const Value *need(const Value *object, const char *key, int kind) {
    const Value *m = member(object, key);
    if (!m || (int)m->kind != kind) protocol_error("a field is missing, or is of another type");
    return m;
}

static long long number(const Value *object, const char *key) { return need(object, key, INT)->number; }

static long long optional(const Value *object, const char *key) {
    return member(object, key) ? number(object, key) : 0;
}

static int whole(const Value *object, const char *key, int least) {
    long long n = number(object, key);
    if (n < least || n > 100000000) protocol_error("a number is out of range");
    return (int)n;
}

/* -- text that grows: an event is put together piece by piece ----------------------------------------------------- */

typedef struct { char *text; size_t used, room; } Text;

static void put(Text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int more = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (t->used + more + 1 > t->room) t->text = grown(t->text, t->room = 2 * (t->used + more + 1), 1);
    va_start(args, format);
    t->used += vsnprintf(t->text + t->used, more + 1, format, args);
    va_end(args);
}

/* The next member of a list: a comma first, unless it is the first. */
static void comma(Text *t) { if (t->used) put(t, ","); }

static void numbers(Text *t, const int *blocks, int count) {
    put(t, "[");
    for (int i = 0; i < count; i++) put(t, i ? ",%d" : "%d", blocks[i]);
    put(t, "]");
}

static const char *shown(const Text *t) { return t->used ? t->text : ""; }

/* -- the scheduler ------------------------------------------------------------------------------------------------ */

typedef struct {
    char *name;
    int prompt, max_tokens, known, computed; /* tokens; the first `computed` of them have their KV in the table */
    int *table, pages;
    bool again; /* it ran before and waits to resume */
    bool over;  /* aborted; kept only while a frame flies for it */
} Request;

typedef struct { Request **of; int count; } Queue;

static bool faulty;
static int page_size, blocks, max_running, budget, max_length, frame;
static int *unused, unused_count;      /* free blocks */
static Queue running, waiting, flight; /* flight: who was granted tokens in the frame that flies */

static int pages(int tokens) { return (tokens + page_size - 1) / page_size; }
static int least(int a, int b) { return a < b ? a : b; }

static void insert(Queue *q, int at, Request *r) {
    q->of = grown(q->of, q->count + 1, sizeof *q->of);
    memmove(q->of + at + 1, q->of + at, (q->count++ - at) * sizeof *q->of);
    q->of[at] = r;
}

static int position(const Queue *q, const Request *r) {
    for (int i = 0; i < q->count; i++)
        if (q->of[i] == r) return i;
    return -1;
}

static void drop(Queue *q, const Request *r) {
    int at = position(q, r);
    if (at >= 0) memmove(q->of + at, q->of + at + 1, (--q->count - at) * sizeof *q->of);
}

static Request *find(const char *name) {
    for (int i = 0; i < running.count + waiting.count; i++) {
        Request *r = i < running.count ? running.of[i] : waiting.of[i - running.count];
        if (!strcmp(r->name, name)) return r;
    }
    return NULL;
}

static void forget(Request *r) {
    free(r->name);
    free(r->table);
    free(r);
}

/* No frame flies any more: nobody asks for those who are over. */
static void landed(void) {
    for (; flight.count; flight.count--)
        if (flight.of[flight.count - 1]->over) forget(flight.of[flight.count - 1]);
}

/* All blocks go back; `told` gets them as the protocol wants them: a list per group, of which there is one. */
static void release(Request *r, Text *told) {
    put(told, "[");
    numbers(told, r->table, r->pages);
    put(told, "]");
    memcpy(unused + unused_count, r->table, r->pages * sizeof *unused);
    unused_count += r->pages;
    r->pages = 0;
    if (!faulty) r->computed = 0; /* the KV is gone with the blocks */
}

static void names(Text *t, const char *label, const Queue *q) {
    put(t, ",\"%s\":[", label);
    for (int i = 0; i < q->count; i++) put(t, i ? ",\"%s\"" : "\"%s\"", q->of[i]->name);
    put(t, "]");
}

/* Our own books: the oracle compares them with what it derived itself, and believes none of it. */
static void books(Text *t) {
    put(t, ",\"observed\":{\"free\":[%d],\"free_ids\":[", unused_count);
    numbers(t, unused, unused_count);
    put(t, "],\"refs\":[],\"held\":[");
    for (int i = 0, n = 0; i < waiting.count; i++) {
        const Request *r = waiting.of[i]; /* who waits should hold nothing: say so if it does */
        if (r->pages || r->computed) put(t, "%s[\"%s\",%d,%d]", n++ ? "," : "", r->name, r->pages, r->computed);
    }
    put(t, "]");
    names(t, "running", &running);
    names(t, "waiting", &waiting);
    put(t, "}");
}

/* -- the commands: each puts the members of its answer behind the id ---------------------------------------------- */

static bool is(const Value *config, const char *knob, const char *text, int number_) {
    const Value *v = member(config, knob); /* a setting that is not sent is one nobody asks for */
    return !v || (text ? v->kind == TEXT && !strcmp(v->text, text) : v->kind <= INT && v->number == number_);
}

static void start(const Value *command, Text *t) {
    static const struct { const char *knob, *text; int number; } fixed[] = {
        {"policy", "vllm-fcfs", 0}, {"groups", "full", 0}, {"caching", NULL, 0}, {"chunked", NULL, 1},
        {"whole_fit", NULL, 1}, {"long_prefill", NULL, 0}, {"watermark", NULL, 0}, {"frames", NULL, 1},
        {"drafts", NULL, 0}, {"host_blocks", NULL, 0}, {"lookahead", NULL, 0}};
    const Value *config = need(command, "config", OBJECT);
    need(config, "policy", TEXT);
    /* Refuse what this scheduler does not do. A refusal is no verdict; doing something else in silence is a violation. */
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (!is(config, fixed[i].knob, fixed[i].text, fixed[i].number)) {
            put(t, "\"event\":\"refused\",\"reason\":\"this scheduler has no other %s\"", fixed[i].knob);
            return;
        }
    landed(); /* whatever ran before is forgotten */
    while (running.count) forget(running.of[--running.count]);
    while (waiting.count) forget(waiting.of[--waiting.count]);
    blocks = whole(config, "blocks", 1), page_size = whole(config, "page_size", 1);
    max_running = whole(config, "max_running", 1), budget = whole(config, "budget", 1);
    max_length = whole(config, "max_length", 2), frame = -1;
    if (max_length > (long long)blocks * page_size) {
        put(t, "\"event\":\"refused\",\"reason\":\"max_length exceeds the pool\"");
        return;
    }
    unused = grown(unused, blocks, sizeof *unused);
    for (unused_count = 0; unused_count < blocks; unused_count++) unused[unused_count] = unused_count;
    put(t, "\"event\":\"header\",\"engine\":\"stdio-scheduler-in-c\",\"version\":\"1\",\"policy\":\"vllm-fcfs\","
           "\"limits\":{\"max_running\":%d,\"budget\":%d,\"max_length\":%d},"
           "\"groups\":[{\"name\":\"full\",\"kind\":\"full\",\"page_size\":%d}],"
           "\"pools\":[{\"tier\":\"device\",\"group\":0,\"total\":%d,\"reserved\":0}],",
        max_running, budget, max_length, page_size, blocks);
    /* Declare what you really report and nothing else: a rule that lacks something is "not observable", never a pass. */
    put(t, "\"observes\":[\"counts\",\"blocks\",\"free\",\"free-ids\",\"refs\",\"queues\",\"demote\",\"trigger\","
           "\"release\",\"reset\",\"held\",\"place\",\"known\",\"start\",\"sent\",\"reject\"],"
           "\"capabilities\":[\"abort\",\"chunked\",\"small_budget\"]");
}

static void add(const Value *command, Text *t) {
    const char *name = need(command, "request", TEXT)->text;
    const Value *prompt = need(command, "prompt", LIST);
    int length = 0, max_tokens = whole(command, "max_tokens", 1);
    for (const Value *token = prompt->first; token; token = token->next, length++)
        if (token->kind != INT) protocol_error("a token is a whole number");
    if (find(name)) {
        put(t, "\"event\":\"refused\",\"reason\":\"this id is alive\"");
    } else if (!length || (long long)length + max_tokens > max_length) {
        put(t, "\"event\":\"reject\",\"request\":\"%s\",\"reason\":\"empty, or longer than max_length\"", name);
    } else {
        Request *r = grown(NULL, 1, sizeof *r);
        *r = (Request){.prompt = length, .max_tokens = max_tokens, .known = length};
        r->name = strcpy(grown(NULL, strlen(name) + 1, 1), name);
        insert(&waiting, waiting.count, r);
        put(t, "\"event\":\"arrive\",\"request\":\"%s\",\"prompt\":[", name);
        for (const Value *token = prompt->first; token; token = token->next)
            put(t, token == prompt->first ? "%lld" : ",%lld", token->number);
        put(t, "],\"max_tokens\":%d,\"priority\":%lld,\"arrival\":%lld,\"salt\":\"%s\"", max_tokens,
            optional(command, "priority"), optional(command, "arrival"),
            member(command, "salt") ? need(command, "salt", TEXT)->text : "");
    }
}

static void abort_request(const Value *command, Text *t) {
    const char *name = need(command, "request", TEXT)->text;
    Request *r = find(name);
    put(t, "\"event\":\"abort\",\"request\":\"%s\",\"blocks\":", name);
    if (r) {
        drop(&running, r);
        drop(&waiting, r);
        release(r, t);
        if (position(&flight, r) < 0) forget(r);
        else r->over = true; /* what still flies for it is dropped when it lands: see deliver */
    } else {
        put(t, "[[]]");
    }
    books(t);
}

typedef struct { Text requests, tokens, start, blocks, sent, resumed, acts; int left; } Step;

/* Never more tokens than there are slots: the blocks that its table lacks, then the grant. */
static void grant(Step *e, Request *r, int tokens, bool admitted) {
    int had = r->pages, lack = pages(r->computed + tokens) - had;
    if (lack > 0) {
        r->table = grown(r->table, had + lack, sizeof *r->table);
        while (r->pages < had + lack) r->table[r->pages++] = unused[--unused_count];
        comma(&e->blocks);
        put(&e->blocks, "[\"%s\",0,", r->name);
        numbers(&e->blocks, r->table + had, lack);
        put(&e->blocks, "]");
    }
    if (admitted || lack > 0) { /* the worker is told a newcomer's whole table, and of others only what is new */
        int from = admitted ? 0 : had;
        comma(&e->sent);
        put(&e->sent, "[\"%s\",0,", r->name);
        numbers(&e->sent, r->table + from, r->pages - from);
        put(&e->sent, ",%s]", admitted ? "true" : "false");
    }
    comma(&e->requests), put(&e->requests, "\"%s\"", r->name);
    comma(&e->tokens), put(&e->tokens, "%d", tokens);
    comma(&e->start), put(&e->start, "%d", r->computed);
    insert(&flight, flight.count, r);
    r->computed += tokens;
    e->left -= tokens;
}

/* `after` counts the grants of this step that were made before the act. */
static void preempt(Step *e, Request *victim, const Request *requester, int need_) {
    int after = flight.count, supply = unused_count;
    comma(&e->acts);
    put(&e->acts, "{\"act\":\"demote\",\"request\":\"%s\",\"after\":%d,\"cause\":\"growth\",\"beneficiaries\":[\"%s\"],"
                  "\"need\":%d,\"supply\":%d},", victim->name, after, requester->name, need_, supply);
    put(&e->acts, "{\"act\":\"release\",\"request\":\"%s\",\"after\":%d,\"blocks\":", victim->name, after);
    drop(&running, victim);
    release(victim, &e->acts);
    insert(&waiting, 0, victim);
    victim->again = true;
    put(&e->acts, ",\"computed\":%d},{\"act\":\"requeue\",\"request\":\"%s\",\"after\":%d,\"queue\":\"waiting\","
                  "\"index\":0,\"known\":%d}", victim->computed, victim->name, after, victim->known);
}

static void step(const Value *command, Text *t) {
    Step e = {.left = budget};
    (void)command;
    if (flight.count) protocol_error("one frame at a time: the last one was not delivered");
    frame++;
    /* 1. Everybody who runs, in order, while the budget lasts. */
    for (int i = 0; i < running.count && e.left > 0; i++) {
        Request *r = running.of[i];
        int tokens = least(r->known - r->computed, e.left), lack = pages(r->computed + tokens) - r->pages;
        /* 2. Too few blocks: victims from the tail, at last r itself. */
        while (lack > unused_count && position(&running, r) >= 0) preempt(&e, running.of[running.count - 1], r, lack);
        if (position(&running, r) >= 0) grant(&e, r, tokens, false);
    }
    /* 3. Admission, head of the line first. All known tokens must fit, outputs included; a prefill may still be split. */
    while (!e.acts.used && waiting.count && e.left > 0 && running.count < max_running) {
        Request *r = waiting.of[0];
        if (pages(r->known) > unused_count) break; /* whoever does not fit blocks everybody behind it */
        drop(&waiting, r);
        insert(&running, running.count, r);
        if (r->again) comma(&e.resumed), put(&e.resumed, "[\"%s\",%d]", r->name, r->known);
        r->again = false;
        grant(&e, r, least(r->known - r->computed, e.left), true);
    }
    put(t, "\"event\":\"step\",\"frame\":%d,\"requests\":[%s],\"tokens\":[%s],\"start\":[%s],\"blocks\":[%s],\"sent\":[%s],",
        frame, shown(&e.requests), shown(&e.tokens), shown(&e.start), shown(&e.blocks), shown(&e.sent));
    put(t, "\"resumed\":[%s],\"acts\":[%s]", shown(&e.resumed), shown(&e.acts));
    if (!flight.count) put(t, ",\"reason\":\"%s\"", running.count + waiting.count ? "nobody could be granted" : "idle");
    books(t);
    Text *all[] = {&e.requests, &e.tokens, &e.start, &e.blocks, &e.sent, &e.resumed, &e.acts};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->text);
}

/* What the frame sampled: a list of tokens for each request that reached its last known one. */
static void deliver(const Value *command, Text *t) {
    const Value *requests = need(command, "requests", LIST), *tokens = need(command, "tokens", LIST);
    Text told = {0}, brought = {0}, fate = {0}, finished = {0};
    if (whole(command, "frame", 0) != frame) protocol_error("this frame does not fly");
    const Value *sampled = tokens->first;
    for (const Value *name = requests->first; name; name = name->next, sampled = sampled->next) {
        if (name->kind != TEXT || !sampled || sampled->kind != LIST) protocol_error("a list of tokens per request");
        Request *r = NULL; /* by the frame, not by name: an id may have been aborted and used again meanwhile */
        for (int i = 0; i < flight.count; i++)
            if (!strcmp(flight.of[i]->name, name->text)) r = flight.of[i];
        bool lives = r && !r->over;
        comma(&told), put(&told, "\"%s\"", name->text);
        comma(&brought), put(&brought, "[");
        for (const Value *token = sampled->first; token; token = token->next) {
            if (token->kind != INT) protocol_error("a token is a whole number");
            put(&brought, token == sampled->first ? "%lld" : ",%lld", token->number);
            if (lives) r->known++; /* a real engine would keep the token; this one needs only the count */
        }
        put(&brought, "]");
        comma(&fate), put(&fate, lives ? "\"delivered\"" : "\"dropped\"");
        if (lives && r->known - r->prompt >= r->max_tokens) {
            comma(&finished), put(&finished, "{\"request\":\"%s\",\"reason\":\"length\",\"blocks\":", r->name);
            drop(&running, r);
            release(r, &finished);
            put(&finished, "}");
            r->over = true;
        }
    }
    if (sampled) protocol_error("a list of tokens per request");
    put(t, "\"event\":\"deliver\",\"frame\":%d,\"requests\":[%s],\"tokens\":[%s],\"disposition\":[%s],\"finished\":[%s]",
        frame, shown(&told), shown(&brought), shown(&fate), shown(&finished));
    landed();
    free(told.text), free(brought.text), free(fate.text), free(finished.text);
}

static void control(const Value *command, Text *t) {
    need(command, "kind", TEXT);
    put(t, "\"event\":\"refused\",\"reason\":\"this scheduler has no controls\"");
}

static void stop(const Value *command, Text *t) {
    (void)command;
    put(t, "\"event\":\"stopped\"");
}

int main(int count, char **arguments) {
    static const struct { const char *name; void (*run)(const Value *, Text *); } commands[] = {
        {"start", start}, {"add", add}, {"abort", abort_request}, {"control", control},
        {"step", step}, {"deliver", deliver}, {"stop", stop}};
    bool started = false;
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    faulty = count == 2 && !strcmp(arguments[1], "--faulty");
    if (count > 1 && !faulty) return fputs("usage: scheduler [--faulty]\n", stderr), 2;
    while ((length = getline(&line, &room, stdin)) >= 0) {
        Value *command;
        strcpy(answer_id, "null");
        if (strlen(line) != (size_t)length) protocol_error("not a line of JSON: it has a zero byte");
        if (*spaces(value(line, &command, 0))) protocol_error("not a line of JSON: more than one value");
        if (command->kind != OBJECT) protocol_error("a command is an object");
        snprintf(answer_id, sizeof answer_id, "%lld", number(command, "id"));
        const char *what = need(command, "do", TEXT)->text;
        void (*run)(const Value *, Text *) = NULL;
        for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
            if (!strcmp(commands[i].name, what)) run = commands[i].run;
        if (!run) protocol_error("unknown command");
        if (!started && run != start) protocol_error("a start comes first");
        Text answer = {0};
        run(command, &answer);
        started = started || !strstr(answer.text, "\"event\":\"refused\"");
        printf("{\"id\":%s,%s}\n", answer_id, answer.text); /* nothing else may print */
        fflush(stdout);
        free(answer.text);
        for (Value *v = made; v; v = made) made = v->made, free(v);
    }
    return 0; /* the end of input is a clean end */
}
