interface MeterProps {
  readonly label: string;
  /** 0 to 100. */
  readonly share: number;
  /** The value as text. */
  readonly text: string;
  /** Marks a capacity, which is highlighted when almost full. */
  readonly isCapacity?: true;
}

/** From this percentage on, a capacity is highlighted. */
const almostFull = 90;

/** A percentage, as a bar and as text. */
export function Meter({ label, share, text, isCapacity }: MeterProps) {
  return (
    <div class={isCapacity === true && share >= almostFull ? "meter full" : "meter"}>
      <span>{label}</span>
      <span>{text}</span>
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
