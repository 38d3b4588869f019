import type { Live } from "../../live.ts";
import { Failure } from "../../parts/failure.tsx";
import { Text } from "../../parts/text.tsx";
import { texts } from "../../texts.ts";
import { inventoryTexts as says } from "../../texts/inventory.ts";

/** Why nothing is known of the container engine: many hosts have none, and miss nothing. */
export function EngineFailure({ of }: { of: Live<unknown> }) {
  if (!of.isUnavailable) return <Failure says={of.failure} />;
  return (
    <div class="notice" role="status">
      <p>
        <strong>{says.noEngine}</strong> {says.noEngineNeeded}
      </p>
      <p class="quiet">
        <Text of={of.failure} />
      </p>
      <p>{says.noEngineHint}</p>
      <button type="button" onClick={of.again}>
        {texts.readAgain}
      </button>
    </div>
  );
}
