export interface DiskUse {
  readonly usedBytes: number | bigint;
  /** Bytes that users other than root can still use. */
  readonly availableBytes: number | bigint;
}

/** How full a file system is, in percent as df(1) counts: blocks reserved for root are neither used nor free. */
export function diskPercent({ usedBytes, availableBytes }: DiskUse): number {
  const used = Number(usedBytes);
  const all = used + Number(availableBytes);
  return all === 0 ? 0 : (used * 100) / all;
}
