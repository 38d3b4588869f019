import type { Live } from "../../live.ts";
import { Failure } from "../../parts/failure.tsx";
import { Text } from "../../parts/text.tsx";
import { texts } from "../../texts.ts";
import { inventoryTexts as labels } from "../../texts/inventory.ts";

/** Explains why the container engine's data is missing. Many hosts need no engine. */
export function EngineFailure({ of }: { of: Live<unknown> }) {
  if (!of.isUnavailable) return <Failure message={of.failure} />;
  return (
    <div class="notice" role="status">
      <p>
        <strong>{labels.noEngine}</strong> {labels.noEngineNeeded}
      </p>
      <p class="quiet">
        <Text of={of.failure} />
      </p>
      <p>{labels.noEngineHint}</p>
      <button type="button" onClick={of.reload}>
        {texts.readAgain}
      </button>
    </div>
  );
}
