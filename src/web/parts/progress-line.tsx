import type { Progress } from "../../../gen/svc/v1/app_pb.ts";
import { plainLine } from "../plain-text.ts";
import { texts } from "../texts.ts";
import { formatBytes } from "../units.ts";
import { Bar, percentOf } from "./meter.tsx";

/** How far something is; nothing while nothing is known. */
export function ProgressLine({ of }: { of: Progress | undefined }) {
  if (of === undefined) return null;
  const { step, message, doneBytes, totalBytes } = of;
  const says = [step, message].filter((text) => text !== "").map(plainLine);
  const isMeasured = doneBytes !== undefined && totalBytes !== undefined && totalBytes > 0n;
  return (
    <div role="status">
      <bdi>{says.join(" – ")}</bdi>{" "}
      {isMeasured && (
        <>
          <span class="quiet">{texts.overview.used(formatBytes(doneBytes), formatBytes(totalBytes))}</span>{" "}
          <Bar label={says.join(" ")} share={percentOf(doneBytes, totalBytes)} />
        </>
      )}
    </div>
  );
}
