/** A bar that says how much of something is used. */
export type MeterWeight = 'plain' | 'warn' | 'bad';

export interface MeterProps {
  readonly label: string;
  /** 0 to 1. */
  readonly share: number;
  readonly weight: MeterWeight;
}

export function Meter({ label, share, weight }: MeterProps) {
  const filled = Math.min(1, Math.max(0, share));
  return (
    <>
      <meter class="unseen" aria-label={label} min={0} max={1} value={filled} />
      <div class="meter" aria-hidden="true">
        <div class={weight} style={{ width: `${(filled * 100).toFixed(1)}%` }} />
      </div>
    </>
  );
}
