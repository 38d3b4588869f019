/** The number of concurrent test files: more than the CPUs while these are idle, because most tests mostly wait. */
import { availableParallelism, cpus } from "node:os";

const lookMs = 2_000;
/** The idle share of CPU time since the last sample: above it another file starts, below it one fewer runs. */
const spareShare = 0.12;
const tightShare = 0.02;
/** Per CPU, so that tests that use a whole CPU at the same time still make progress. */
const mostByProcessor = 4;

/**
 * Runs `work` repeatedly and concurrently until it reports that none is left: at first one more than there are CPUs, up
 * to four per CPU while they are idle.
 */
export async function fillProcessors(work: () => Promise<boolean>): Promise<void> {
  const least = availableParallelism() + 1;
  const most = availableParallelism() * mostByProcessor;
  const running = new Set<Promise<void>>();
  let isTight = false;
  let isOver = false;
  const add = (): void => {
    const one = (async () => {
      do isOver = !(await work()) || isOver;
      while (!isOver && !(isTight && running.size > least));
    })().finally(() => running.delete(one));
    running.add(one);
  };
  let before = processorTimes();
  const looking = setInterval(() => {
    const now = processorTimes();
    const spare = (now.idle - before.idle) / (now.all - before.all);
    before = now;
    isTight = spare < tightShare;
    if (spare > spareShare && running.size < most && !isOver) add();
  }, lookMs);
  for (let at = 0; at < least; at += 1) add();
  try {
    while (running.size > 0) await Promise.race(running);
  } finally {
    clearInterval(looking);
  }
}

function processorTimes(): { idle: number; all: number } {
  const times = cpus().map((cpu) => cpu.times);
  const idle = times.reduce((sum, each) => sum + each.idle, 0);
  const all = times.reduce(
    (sum, { user, nice, sys, idle: rest, irq }) => sum + user + nice + sys + rest + irq,
    0,
  );
  return { idle, all };
}
