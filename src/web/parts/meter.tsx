interface MeterProps {
  readonly label: string;
  /** 0 to 100. */
  readonly share: number;
  /** The figure in words. */
  readonly says: string;
}

/** A share of a whole, as a bar and as a figure. */
export function Meter({ label, share, says }: MeterProps) {
  return (
    <div class="meter">
      <span>{label}</span>
      <span>{says}</span>
      <Bar label={label} share={share} />
    </div>
  );
}

export function Bar({ label, share }: Pick<MeterProps, "label" | "share">) {
  return <progress max={100} value={share} aria-label={label} />;
}

export function percentOf(part: bigint, whole: bigint): number {
  return whole === 0n ? 0 : (Number(part) / Number(whole)) * 100;
}
