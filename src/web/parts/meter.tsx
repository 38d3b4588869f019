interface MeterProps {
  readonly label: string;
  /** 0 to 100. */
  readonly share: number;
  /** The figure in words. */
  readonly says: string;
  /** It is of room that should not run out. */
  readonly isRoom?: true;
}

/** So much of a room in use is told by more than the figure. */
const almostFull = 90;

/** A share of a whole, as a bar and as a figure. */
export function Meter({ label, share, says, isRoom }: MeterProps) {
  return (
    <div class={isRoom === true && share >= almostFull ? "meter full" : "meter"}>
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
