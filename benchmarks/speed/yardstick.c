/* The yardstick: the inner loop of kvsim in C, as one would write it by hand.
 *
 * Blocks (reserve, append, free) and the paged leap under the paper's scheduler, with the ledger's integrals, the
 * timeline's edges left out. The algorithms are those of kvsim/_kernels.py; results must be the same to the bit.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;
typedef __int128 i128;

#define NIL (-1)
#define FOREVER ((i64)1 << 62)

/* --- a pool in blocks --- */

typedef struct {
    i64 block_size, num_blocks, rows, blocks_a_row;
    i64 free, used, promised, held;
    int32_t *stack, *table;
    int16_t *refs;
    i64 *tokens, *final, *limit, *blocks;
} pool;

static i64 min(i64 a, i64 b) { return a < b ? a : b; }

static i64 *longs(i64 n) { return calloc(n > 0 ? n : 1, sizeof(i64)); }

pool *pool_new(i64 num_blocks, i64 block_size, i64 rows, i64 blocks_a_row) {
    pool *p = calloc(1, sizeof *p);
    p->block_size = block_size, p->num_blocks = p->free = num_blocks, p->rows = rows, p->blocks_a_row = blocks_a_row;
    p->stack = calloc(num_blocks, sizeof *p->stack), p->refs = calloc(num_blocks, sizeof *p->refs);
    p->table = calloc(rows * blocks_a_row, sizeof *p->table);
    p->tokens = longs(rows), p->final = longs(rows), p->limit = longs(rows), p->blocks = longs(rows);
    for (i64 i = 0; i < num_blocks; i++) p->stack[i] = num_blocks - 1 - i;
    return p;
}

void pool_delete(pool *p) {
    free(p->stack), free(p->refs), free(p->table), free(p->tokens), free(p->final), free(p->limit), free(p->blocks);
    free(p);
}

i64 pool_reserve(pool *p, i64 row, i64 num_tokens, i64 final, i64 keep_free) {
    i64 needed = (num_tokens + p->block_size - 1) / p->block_size;
    if ((final + p->block_size - 1) / p->block_size > p->num_blocks) return 2;
    if (needed + keep_free > p->free) return 1;
    for (i64 i = 0; i < needed; i++) {
        i64 block = p->stack[p->free - 1 - i];
        p->refs[block] = 1;
        p->table[row * p->blocks_a_row + i] = block;
    }
    i64 slots = needed * p->block_size;
    p->free -= needed, p->held += slots, p->used += num_tokens, p->promised += min(final, slots);
    p->tokens[row] = num_tokens, p->final[row] = final, p->limit[row] = slots, p->blocks[row] = needed;
    return 0;
}

i64 pool_append(pool *p, const i64 *order, i64 num_rows, i64 steps) {
    i64 done = 0;
    for (; done < steps; done++) {
        i64 crossing = 0;
        for (i64 i = 0; i < num_rows; i++) crossing += p->tokens[order[i]] == p->limit[order[i]];
        if (crossing > p->free) break;
        for (i64 i = 0; i < num_rows; i++) {
            i64 row = order[i], tokens = p->tokens[row], limit = p->limit[row];
            p->tokens[row] = tokens + 1;
            if (tokens == limit) {
                i64 block = p->stack[--p->free];
                p->refs[block] = 1;
                p->table[row * p->blocks_a_row + p->blocks[row]++] = block;
                p->limit[row] = limit + p->block_size;
                p->promised += min(p->block_size, p->final[row] - limit);
            }
        }
        p->held += crossing * p->block_size;
    }
    p->used += done * num_rows;
    return done;
}

i64 pool_free(pool *p, i64 row) {
    i64 slots = p->limit[row];
    for (i64 i = p->blocks[row] - 1; i >= 0; i--) {
        i64 block = p->table[row * p->blocks_a_row + i];
        if (--p->refs[block] == 0) p->stack[p->free++] = block;
    }
    p->used -= p->tokens[row], p->promised -= min(p->final[row], slots), p->held -= slots;
    p->tokens[row] = p->final[row] = p->limit[row] = p->blocks[row] = 0;
    return slots;
}

/* loops for the operations, so that what is timed is not the call from Python */

void churn(pool *p, const i64 *num_tokens, i64 n, i64 rounds) {
    for (i64 r = 0; r < rounds; r++) {
        for (i64 i = 0; i < n; i++) pool_reserve(p, i, num_tokens[i], num_tokens[i], 0);
        for (i64 i = 0; i < n; i++) pool_free(p, i);
    }
}

void grow(pool *p, const i64 *order, i64 num_rows, i64 rounds) {
    for (i64 r = 0; r < rounds; r++) pool_append(p, order, num_rows, 1);
}

/* --- the paged leap --- */

typedef struct {
    pool *p;
    double latency[4];
    i64 n, max_seqs, max_batched, keep_free;
    const i64 *arrival, *prompt, *output;
    i64 *admitted, *first, *finish, *preempted_times, *recomputed, *progress;
    i64 now, iteration, next_last, head, arrived, waiting, num_preempted, running, prefill, settled, free_rows;
    i64 *order, *request, *offset, *last, *next, *previous, *rows_stack, *preempted;
    i64 *due_first, *due_last, *due_num;
    i128 used_ns, promised_ns, held_ns, running_ns, waiting_ns;
    i64 iterations, sequences, preemptions, recomputed_tokens;
} run;

static i64 iteration_ns(const double *c, i64 batch, i64 prefill, i64 context) {
    return (i64)rint(c[0] + c[1] * batch + c[2] * prefill + c[3] * context);
}

static i64 phase_of(run *r, i64 row) {
    i64 m = (1 - r->offset[row]) % r->p->block_size;
    return m < 0 ? m + r->p->block_size : m;
}

static void enlist(run *r, i64 row) {
    i64 phase = phase_of(r, row), last = r->due_last[phase];
    r->previous[row] = last, r->next[row] = NIL;
    if (last == NIL) r->due_first[phase] = row;
    else r->next[last] = row;
    r->due_last[phase] = row;
    r->due_num[phase]++;
}

static void delist(run *r, i64 row, i64 phase) {
    i64 before = r->previous[row], after = r->next[row];
    if (before == NIL) r->due_first[phase] = after;
    else r->next[before] = after;
    if (after == NIL) r->due_last[phase] = before;
    else r->previous[after] = before;
    r->due_num[phase]--;
}

static void take_due(run *r, i64 phase) {
    pool *p = r->p;
    p->held += r->due_num[phase] * p->block_size;
    for (i64 row = r->due_first[phase]; row != NIL;) {
        i64 after = r->next[row], block = p->stack[--p->free], limit = p->limit[row], left = p->final[row] - limit;
        p->refs[block] = 1;
        p->table[row * p->blocks_a_row + p->blocks[row]++] = block;
        p->promised += min(p->block_size, left);
        p->limit[row] = limit + p->block_size;
        if (left <= p->block_size) delist(r, row, phase);
        row = after;
    }
}

/* Blocks of one slot: every row in the list takes one in each round. As take_due by iterations, but row by row. */
static void take_rounds(run *r, i64 rounds) {
    pool *p = r->p;
    i64 num_due = r->due_num[0], top = p->free + rounds * num_due;
    for (i64 row = r->due_first[0]; row != NIL; row = r->next[row]) {
        int32_t *table = p->table + row * p->blocks_a_row + p->blocks[row];
        top--;
        for (i64 i = 0; i < rounds; i++) {
            i64 block = p->stack[top - i * num_due];
            p->refs[block] = 1;
            table[i] = block;
        }
        p->blocks[row] += rounds, p->limit[row] += rounds;
    }
}

static void arrive(run *r, i64 until) {
    while (r->arrived < r->n && r->arrival[r->arrived] <= until) {
        r->waiting++;
        r->waiting_ns += until - r->arrival[r->arrived++];
    }
}

static void accrue(run *r, i64 until) {
    i64 ns = until - r->now;
    r->used_ns += (i128)r->p->used * ns;
    r->promised_ns += (i128)r->p->promised * ns;
    r->held_ns += (i128)r->p->held * ns;
    r->running_ns += (i128)r->running * ns;
    r->waiting_ns += (i128)r->waiting * ns;
    arrive(r, until);
}

static void soonest(run *r) {
    i64 soon = FOREVER;
    for (i64 i = 0; i < r->running; i++) soon = min(soon, r->last[r->order[i]]);
    r->next_last = soon;
}

static void evict_latest(run *r) {
    pool *p = r->p;
    i64 row = r->order[--r->running], request = r->request[row], tokens = r->offset[row] + r->iteration - 1;
    if (p->limit[row] < p->final[row]) delist(r, row, phase_of(r, row));
    p->tokens[row] = tokens;
    pool_free(p, row);
    r->preempted_times[request]++;
    r->progress[request] = tokens - r->prompt[request] + 1;
    r->preempted[r->num_preempted++] = request;
    r->waiting++;
    r->rows_stack[r->free_rows++] = row;
    r->preemptions++;
}

static i64 waiting_head(run *r) {
    if (r->num_preempted) return r->preempted[r->num_preempted - 1];
    return r->head < r->n && r->arrival[r->head] <= r->now ? r->head : NIL;
}

static void admit(run *r) {
    pool *p = r->p;
    i64 decoding = r->running;
    for (;;) {
        i64 request = waiting_head(r);
        if (request == NIL || r->running >= r->max_seqs) return;
        i64 tokens = r->prompt[request] + r->progress[request], row = r->rows_stack[r->free_rows - 1];
        i64 final = r->prompt[request] + r->output[request] - 1;
        if (r->running && decoding + r->prefill + tokens > r->max_batched) return;
        if (pool_reserve(p, row, tokens, final, r->running ? r->keep_free : 0)) return;
        r->free_rows--;
        r->request[row] = request, r->offset[row] = tokens - r->iteration, r->last[row] = final - r->offset[row];
        r->next_last = min(r->next_last, r->last[row]);
        r->order[r->running++] = row;
        r->waiting--;
        if (r->num_preempted) {
            r->num_preempted--;
            r->recomputed[request] += tokens, r->recomputed_tokens += tokens;
        } else {
            r->head++;
            r->admitted[request] = r->now;
        }
        if (p->limit[row] < final) enlist(r, row);
        r->prefill += tokens;
    }
}

static void leap(run *r) {
    pool *p = r->p;
    i64 size = p->block_size, batch = r->running, used = p->used, now = r->now, start = now;
    i64 steps = r->next_last - r->iteration, done = 0, phase = r->iteration % size;
    i64 watched = r->settled == 1 && r->head < r->n ? r->arrival[r->head] : FOREVER;
    i64 used_ns = 0, promised_ns = 0, held_ns = 0;
    while (done < steps && now < watched && r->due_num[phase] <= p->free) {
        if ((used_ns | promised_ns | held_ns) >= (i64)1 << 61) break;
        if (size == 1) p->free -= r->due_num[0], p->held += r->due_num[0], p->promised += r->due_num[0];
        else if (r->due_num[phase]) take_due(r, phase);
        used += batch;
        i64 ns = iteration_ns(r->latency, batch, 0, used);
        used_ns += used * ns, promised_ns += p->promised * ns, held_ns += p->held * ns;
        now += ns;
        done++;
        phase = phase + 1 == size ? 0 : phase + 1;
    }
    if (size == 1) take_rounds(r, done);
    r->used_ns += used_ns, r->promised_ns += promised_ns, r->held_ns += held_ns;
    r->running_ns += (i128)batch * (now - start), r->waiting_ns += (i128)r->waiting * (now - start);
    arrive(r, now);
    p->used = used, r->now = now, r->iteration += done, r->iterations += done, r->sequences += done * batch;
}

static void complete(run *r) {
    i64 kept = 0;
    for (i64 i = 0; i < r->running; i++) {
        i64 row = r->order[i];
        if (r->last[row] != r->iteration) {
            r->order[kept++] = row;
            continue;
        }
        r->p->tokens[row] = r->p->final[row];
        pool_free(r->p, row);
        r->finish[r->request[row]] = r->now;
        r->rows_stack[r->free_rows++] = row;
    }
    r->running = kept;
}

/* Run all requests to the end. `outcome` has six rows of n: admitted, first, finish, preemptions, recomputed, progress. */
void simulate(pool *p, const double *latency, i64 n, const i64 *arrival, const i64 *prompt, const i64 *output,
              i64 max_seqs, i64 max_batched, i64 keep_free, i64 *outcome, i64 *totals) {
    run state = {.p = p, .n = n, .arrival = arrival, .prompt = prompt, .output = output, .max_seqs = max_seqs,
                 .max_batched = max_batched, .keep_free = keep_free, .next_last = FOREVER, .free_rows = max_seqs};
    run *r = &state;
    memcpy(r->latency, latency, sizeof r->latency);
    r->admitted = outcome, r->first = outcome + n, r->finish = outcome + 2 * n;
    r->preempted_times = outcome + 3 * n, r->recomputed = outcome + 4 * n, r->progress = outcome + 5 * n;
    r->order = longs(max_seqs), r->request = longs(max_seqs), r->offset = longs(max_seqs), r->last = longs(max_seqs);
    r->next = longs(max_seqs), r->previous = longs(max_seqs), r->rows_stack = longs(max_seqs);
    r->preempted = longs(max_seqs);
    r->due_first = longs(p->block_size), r->due_last = longs(p->block_size), r->due_num = longs(p->block_size);
    for (i64 i = 0; i < max_seqs; i++) r->rows_stack[i] = max_seqs - 1 - i;
    for (i64 i = 0; i < p->block_size; i++) r->due_first[i] = r->due_last[i] = NIL;
    for (;;) {
        if (r->settled) leap(r);
        arrive(r, r->now);
        i64 evicted = 0, phase = r->iteration % p->block_size;
        if (r->running) {
            for (; r->due_num[phase] > p->free; evicted++) evict_latest(r);
            if (evicted) soonest(r);
            take_due(r, phase);
            p->used += r->running;
        }
        i64 decoding = r->running;
        r->prefill = 0;
        if (!evicted) admit(r);
        i64 head = waiting_head(r);
        if (r->running == 0) {
            if (r->head == n) break;
            accrue(r, arrival[r->head]);
            r->now = arrival[r->head];
            continue;
        }
        r->settled = head == NIL ? 1 : !evicted && r->running == decoding ? 2 : 0;
        i64 until = r->now + iteration_ns(r->latency, r->running, r->prefill, p->used - r->prefill);
        accrue(r, until);
        r->now = until;
        r->iterations++, r->sequences += r->running;
        for (i64 i = decoding; i < r->running; i++) {
            i64 request = r->request[r->order[i]];
            if (r->progress[request] == 0) r->first[request] = r->now;
        }
        i64 last = r->iteration == r->next_last;
        if (last) complete(r), r->settled = 0;
        r->iteration++;
        if (last) soonest(r);
    }
    i128 sums[5] = {r->used_ns, r->promised_ns, r->held_ns, r->running_ns, r->waiting_ns};
    for (int i = 0; i < 5; i++) totals[2 * i] = (i64)(sums[i] >> 62), totals[2 * i + 1] = (i64)(sums[i] & (FOREVER - 1));
    totals[10] = r->iterations, totals[11] = r->sequences, totals[12] = r->preemptions, totals[13] = r->recomputed_tokens;
    free(r->order), free(r->request), free(r->offset), free(r->last), free(r->next), free(r->previous);
    free(r->rows_stack), free(r->preempted), free(r->due_first), free(r->due_last), free(r->due_num);
}
