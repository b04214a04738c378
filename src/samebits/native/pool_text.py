"""The LLVM text of the fork-join pool: `run` for callers, `worker` for threads, `wake` and `spin` for Python.

All words are 64-bit. Three records cross from Python:

table:  0 steps, 1 threads, 2 scratch, 3 scratch bytes a thread, 4 pool (0: none), then from word 8 four words a step:
        kernel, arguments, tasks, grain (tasks taken at a time).
pool:   0 state, 8 done, 16 step, 17 scratch, 18 scratch bytes a thread, 24 busy, 32 .. 35 one bit a sleeping worker,
        40 stop, 41 epoch. Groups are a cache line apart.
worker: 32 words, worker i's at word 64 + 32 i of the pool: 0 pool, 1 index, 2 spins before it sleeps, 3 its thread,
        4 the core it keeps off + 1 (0: none), 8 mutex, 16 condition.

Taking work. The state word is epoch:16 | threads:8 | grabs:20 | next:20. A thread takes work by compare-and-swap of the
state from next to next+1; a success proves that the step it then reads is the one the state described, because a step
ends only when every grab is counted in `done`, and nothing is published before. So a worker that was asleep or late
takes nothing and is waited for by nobody. Should the word have gone round to the same value between a worker's look
and its swap, the swap takes a grab of the step that is published now, which is as good: nothing read before the swap is
used after it but fields of the word itself. `step` and `scratch` are stored before the state that publishes them.

Sleeping. A worker that found nothing for a bounded spin locks its mutex, sets its bit and then looks at the state (and
at `stop`) again; a caller publishes the state and then looks at the bits. All four are sequentially consistent, so at
least one sees the other: no wake-up is lost between them. A caller that sees the bit of a worker it wants clears it
under the worker's mutex and signals; the worker gives the mutex up only by waiting, so the signal finds it waiting, and
it waits until its bit is clear, so a spurious return is not a wake-up. A caller wants workers below
min(threads, grabs): the others sleep on undisturbed, however many there are. A woken worker spins again first, as more
steps mostly follow.

Where a worker wakes. A scheduler likes to wake a thread on its waker's core, where it would wait for the caller that
waits for it; the work is over before any balancing. So on Linux the waker first lets the worker use every core that the
caller may use but the caller's own. The worker is asleep and its mutex is held, so it is alive.

A caller that finds the pool busy does all tasks itself, and so does one whose workers have been stopped: no caller ever
waits for a thread that has not taken a grab.
"""

from __future__ import annotations

WORKER = 64
WORKER_WORDS = 32
WORDS = WORKER + 256 * WORKER_WORDS

_COMMON = """
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i64 @pthread_self()
declare i32 @sched_yield()
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.cttz.i64(i64, i1)

define internal i1 @grab(ptr %pool, i64 %index, ptr %first) {
  ; take one grab of the published step: true if there was one, its number in %first
entry:
  br label %look
look:
  %s = load atomic i64, ptr %pool seq_cst, align 8
  %next = and i64 %s, 1048575
  %s20 = lshr i64 %s, 20
  %grabs = and i64 %s20, 1048575
  %s40 = lshr i64 %s, 40
  %threads = and i64 %s40, 255
  %left = icmp ult i64 %next, %grabs
  %mine = icmp ult i64 %index, %threads
  %some = and i1 %left, %mine
  br i1 %some, label %take, label %none
take:
  %more = add i64 %s, 1
  %pair = cmpxchg ptr %pool, i64 %s, i64 %more seq_cst seq_cst
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %won.block, label %look
won.block:
  store i64 %next, ptr %first
  ret i1 true
none:
  ret i1 false
}

define internal void @perform(ptr %pool, i64 %index, i64 %number) {
  ; run one grab of the published step and count it
entry:
  %step.at = getelementptr i64, ptr %pool, i64 16
  %step = load ptr, ptr %step.at
  %kernel = load ptr, ptr %step
  %arguments.at = getelementptr i64, ptr %step, i64 1
  %arguments = load ptr, ptr %arguments.at
  %tasks.at = getelementptr i64, ptr %step, i64 2
  %tasks = load i64, ptr %tasks.at
  %grain.at = getelementptr i64, ptr %step, i64 3
  %grain = load i64, ptr %grain.at
  %scratch.at = getelementptr i64, ptr %pool, i64 17
  %scratch = load i64, ptr %scratch.at
  %bytes.at = getelementptr i64, ptr %pool, i64 18
  %bytes = load i64, ptr %bytes.at
  %begin = mul i64 %number, %grain
  %after = add i64 %begin, %grain
  %end = call i64 @llvm.smin.i64(i64 %after, i64 %tasks)
  %skip = mul i64 %index, %bytes
  %own = add i64 %scratch, %skip
  %own.ptr = inttoptr i64 %own to ptr
  call void %kernel(ptr %arguments, i64 %begin, i64 %end, ptr %own.ptr)
  %done.at = getelementptr i64, ptr %pool, i64 8
  %old = atomicrmw add ptr %done.at, i64 1 seq_cst
  ret void
}

define ptr @worker(ptr %self) {
entry:
  %first = alloca i64
  call void @clean_environment()
  %thread = call i64 @pthread_self()
  %thread.at = getelementptr i64, ptr %self, i64 3
  store i64 %thread, ptr %thread.at
  %pool = load ptr, ptr %self
  %index.at = getelementptr i64, ptr %self, i64 1
  %index = load i64, ptr %index.at
  %spins.at = getelementptr i64, ptr %self, i64 2
  %spins = load i64, ptr %spins.at
  %mutex = getelementptr i64, ptr %self, i64 8
  %condition = getelementptr i64, ptr %self, i64 16
  %place = lshr i64 %index, 6
  %word = add i64 %place, 32
  %asleep = getelementptr i64, ptr %pool, i64 %word
  %shift = and i64 %index, 63
  %bit = shl i64 1, %shift
  %others = xor i64 %bit, -1
  %stop = getelementptr i64, ptr %pool, i64 40
  br label %busy
busy:
  %got = call i1 @grab(ptr %pool, i64 %index, ptr %first)
  br i1 %got, label %work, label %idle
work:
  %number = load i64, ptr %first
  call void @perform(ptr %pool, i64 %index, i64 %number)
  br label %busy
idle:
  %n = phi i64 [ 0, %busy ], [ %n1, %spin ]
  %asked = load atomic i64, ptr %stop seq_cst, align 8
  %stopping = icmp ne i64 %asked, 0
  br i1 %stopping, label %end, label %look
look:
  %again = call i1 @grab(ptr %pool, i64 %index, ptr %first)
  br i1 %again, label %work, label %patience
patience:
  %tired = icmp uge i64 %n, %spins
  br i1 %tired, label %sleep, label %spin
spin:
  call void @relax()
  %n1 = add i64 %n, 1
  br label %idle
sleep:
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %in = atomicrmw or ptr %asleep, i64 %bit seq_cst
  %asked2 = load atomic i64, ptr %stop seq_cst, align 8
  %stopping2 = icmp ne i64 %asked2, 0
  br i1 %stopping2, label %stay, label %last.look
last.look:
  %found = call i1 @grab(ptr %pool, i64 %index, ptr %first)
  br i1 %found, label %stay.work, label %check
check:
  %bits = load atomic i64, ptr %asleep seq_cst, align 8
  %mine = and i64 %bits, %bit
  %woken = icmp eq i64 %mine, 0
  br i1 %woken, label %wake, label %wait
wait:
  %w = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %check
wake:
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %busy
stay.work:
  %out = atomicrmw and ptr %asleep, i64 %others seq_cst
  %u2 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %work
stay:
  %out3 = atomicrmw and ptr %asleep, i64 %others seq_cst
  %u3 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %end
end:
  ret ptr null
}

define void @spin(i64 %count) {
  ; what an idle worker does, `count` times: to be timed
entry:
  %word = alloca i64
  br label %turn
turn:
  %n = phi i64 [ 0, %entry ], [ %n1, %turn ]
  %looked = load atomic i64, ptr %word seq_cst, align 8
  call void @relax()
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, %count
  br i1 %more, label %turn, label %end
end:
  ret void
}

define void @wake(ptr %pool, i64 %limit) {
  ; wake every sleeping worker whose index is below the limit
entry:
  br label %word
word:
  %base = phi i64 [ 0, %entry ], [ %base1, %word.done ]
  %some = icmp ult i64 %base, %limit
  br i1 %some, label %look, label %end
look:
  %place = lshr i64 %base, 6
  %at = add i64 %place, 32
  %asleep = getelementptr i64, ptr %pool, i64 %at
  %bits = load atomic i64, ptr %asleep seq_cst, align 8
  %room = sub i64 %limit, %base
  %all = icmp uge i64 %room, 64
  %shift = and i64 %room, 63
  %power = shl i64 1, %shift
  %low = sub i64 %power, 1
  %mask = select i1 %all, i64 -1, i64 %low
  %wanted = and i64 %bits, %mask
  br label %next
next:
  %left = phi i64 [ %wanted, %look ], [ %left1, %signal ], [ %left1, %awake ]
  %none = icmp eq i64 %left, 0
  br i1 %none, label %word.done, label %rouse
rouse:
  %lane = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %bit = shl i64 1, %lane
  %others = xor i64 %bit, -1
  %left1 = and i64 %left, %others
  %index = add i64 %base, %lane
  %skip = mul i64 %index, 32
  %start = add i64 %skip, 64
  %self = getelementptr i64, ptr %pool, i64 %start
  %mutex = getelementptr i64, ptr %self, i64 8
  %condition = getelementptr i64, ptr %self, i64 16
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %bits.now = load atomic i64, ptr %asleep seq_cst, align 8
  %its = and i64 %bits.now, %bit
  %sleeps = icmp ne i64 %its, 0
  br i1 %sleeps, label %signal, label %awake
signal:
  call void @keep_off(ptr %self)
  %old = atomicrmw and ptr %asleep, i64 %others seq_cst
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  %s = call i32 @pthread_cond_signal(ptr %condition)
  br label %next
awake:
  %u2 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %next
word.done:
  %base1 = add i64 %base, 64
  br label %word
end:
  ret void
}

define internal void @fork_join(ptr %pool, ptr %step, i64 %threads, i64 %grabs) {
entry:
  %first = alloca i64
  %step.at = getelementptr i64, ptr %pool, i64 16
  store ptr %step, ptr %step.at
  %done.at = getelementptr i64, ptr %pool, i64 8
  store atomic i64 0, ptr %done.at seq_cst, align 8
  %epoch.at = getelementptr i64, ptr %pool, i64 41
  %epoch = load i64, ptr %epoch.at
  %epoch1 = add i64 %epoch, 1
  store i64 %epoch1, ptr %epoch.at
  %e = shl i64 %epoch1, 48
  %t = shl i64 %threads, 40
  %g = shl i64 %grabs, 20
  %et = or i64 %e, %t
  %state = or i64 %et, %g
  store atomic i64 %state, ptr %pool seq_cst, align 8
  %wanted = call i64 @llvm.umin.i64(i64 %threads, i64 %grabs)
  call void @wake(ptr %pool, i64 %wanted)
  br label %join
join:
  %got = call i1 @grab(ptr %pool, i64 0, ptr %first)
  br i1 %got, label %work, label %wait
work:
  %number = load i64, ptr %first
  call void @perform(ptr %pool, i64 0, i64 %number)
  br label %join
wait:
  %n = phi i64 [ 0, %join ], [ %n1, %again ]
  %done = load atomic i64, ptr %done.at seq_cst, align 8
  %all = icmp eq i64 %done, %grabs
  br i1 %all, label %end, label %relax
relax:
  call void @relax()
  %long = icmp ugt i64 %n, 4096
  br i1 %long, label %yield, label %again
yield:
  %y = call i32 @sched_yield()
  br label %again
again:
  %n1 = add i64 %n, 1
  br label %wait
end:
  ret void
}

define void @run(ptr %table) {
entry:
  %environment = call i64 @save_environment()
  call void @clean_environment()
  %steps = load i64, ptr %table
  %threads.at = getelementptr i64, ptr %table, i64 1
  %threads = load i64, ptr %threads.at
  %scratch.at = getelementptr i64, ptr %table, i64 2
  %scratch = load ptr, ptr %scratch.at
  %bytes.at = getelementptr i64, ptr %table, i64 3
  %bytes = load i64, ptr %bytes.at
  %pool.at = getelementptr i64, ptr %table, i64 4
  %pool = load ptr, ptr %pool.at
  %busy = getelementptr i64, ptr %pool, i64 24
  %none = icmp eq ptr %pool, null
  br i1 %none, label %start, label %ask
ask:
  %pair = cmpxchg ptr %busy, i64 0, i64 1 seq_cst seq_cst
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %own, label %start
own:
  %pool.scratch = getelementptr i64, ptr %pool, i64 17
  store ptr %scratch, ptr %pool.scratch
  %pool.bytes = getelementptr i64, ptr %pool, i64 18
  store i64 %bytes, ptr %pool.bytes
  br label %start
start:
  %owned = phi i1 [ false, %entry ], [ false, %ask ], [ true, %own ]
  br label %next
next:
  %i = phi i64 [ 0, %start ], [ %i1, %stepped ]
  %more = icmp slt i64 %i, %steps
  br i1 %more, label %step.block, label %finish
step.block:
  %at4 = mul i64 %i, 4
  %at = add i64 %at4, 8
  %step = getelementptr i64, ptr %table, i64 %at
  %tasks.at = getelementptr i64, ptr %step, i64 2
  %tasks = load i64, ptr %tasks.at
  %grain.at = getelementptr i64, ptr %step, i64 3
  %grain = load i64, ptr %grain.at
  %several = icmp sgt i64 %tasks, %grain
  %share = and i1 %several, %owned
  br i1 %share, label %parallel, label %alone
parallel:
  %up = add i64 %tasks, %grain
  %up1 = sub i64 %up, 1
  %grabs = udiv i64 %up1, %grain
  call void @fork_join(ptr %pool, ptr %step, i64 %threads, i64 %grabs)
  br label %stepped
alone:
  %kernel = load ptr, ptr %step
  %arguments.at = getelementptr i64, ptr %step, i64 1
  %arguments = load ptr, ptr %arguments.at
  call void %kernel(ptr %arguments, i64 0, i64 %tasks, ptr %scratch)
  br label %stepped
stepped:
  %i1 = add i64 %i, 1
  br label %next
finish:
  br i1 %owned, label %release, label %end
release:
  store atomic i64 0, ptr %busy seq_cst, align 8
  br label %end
end:
  call void @restore_environment(i64 %environment)
  ret void
}
"""

_LINUX = """
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal void @keep_off(ptr %self) {
  ; keep a sleeping worker off the caller's core; where that cannot be done, it wakes where it may
entry:
  %mask = alloca [128 x i8], align 8
  %core = call i32 @sched_getcpu()
  %known = icmp ult i32 %core, 1024
  %c = zext i32 %core to i64
  %mark = add i64 %c, 1
  %last.at = getelementptr i64, ptr %self, i64 4
  %last = load i64, ptr %last.at
  %new = icmp ne i64 %last, %mark
  %go = and i1 %known, %new
  br i1 %go, label %ask, label %end
ask:
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %unknown = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %given = icmp eq i32 %unknown, 0
  br i1 %given, label %set, label %end
set:
  %place = lshr i64 %c, 6
  %word = getelementptr i64, ptr %mask, i64 %place
  %shift = and i64 %c, 63
  %bit = shl i64 1, %shift
  %others = xor i64 %bit, -1
  %all = load i64, ptr %word
  %rest = and i64 %all, %others
  store i64 %rest, ptr %word
  %thread.at = getelementptr i64, ptr %self, i64 3
  %thread = load i64, ptr %thread.at
  %refused = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr %mask)
  %done = icmp eq i32 %refused, 0
  %kept = select i1 %done, i64 %mark, i64 0
  store i64 %kept, ptr %last.at
  br label %end
end:
  ret void
}
"""

_ELSEWHERE = """
define internal void @keep_off(ptr %self) {
  ret void
}
"""

_X86 = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse2.pause()
define internal i64 @save_environment() noinline {
  %at = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %at)
  %v = load i32, ptr %at
  %w = zext i32 %v to i64
  ret i64 %w
}
define internal void @restore_environment(i64 %w) noinline {
  %at = alloca i32
  %v = trunc i64 %w to i32
  store i32 %v, ptr %at
  call void @llvm.x86.sse.ldmxcsr(ptr %at)
  ret void
}
define internal void @clean_environment() noinline {
  ; round to nearest even, all exceptions masked, no flush to zero
  call void @restore_environment(i64 8064)
  ret void
}
define internal void @relax() {
  call void @llvm.x86.sse2.pause()
  ret void
}
"""

_AARCH64 = """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
declare void @llvm.aarch64.hint(i32)
define internal i64 @save_environment() noinline {
  %v = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %v
}
define internal void @restore_environment(i64 %v) noinline {
  call void @llvm.aarch64.set.fpcr(i64 %v)
  ret void
}
define internal void @clean_environment() noinline {
  call void @llvm.aarch64.set.fpcr(i64 0)
  ret void
}
define internal void @relax() {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}
"""


def module(arch: str, linux: bool) -> str:
    """The pool's LLVM module for an architecture and, if `linux`, with what only Linux can do."""
    return {"x86_64": _X86, "aarch64": _AARCH64}[arch] + (_LINUX if linux else _ELSEWHERE) + _COMMON
