export interface DiskUse {
  readonly usedBytes: number | bigint;
  /** What others than root may still take. */
  readonly availableBytes: number | bigint;
}

/** How full a filesystem is, in percent, as df(1) counts: what is kept for root alone is neither used nor free. */
export function diskPercent({ usedBytes, availableBytes }: DiskUse): number {
  const used = Number(usedBytes);
  const all = used + Number(availableBytes);
  return all === 0 ? 0 : (used * 100) / all;
}
