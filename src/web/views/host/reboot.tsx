import { useSignal } from "@preact/signals";
import { SystemService } from "../../../../gen/svc/v1/system_pb.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { plainText } from "../../plain-text.ts";
import { session } from "../../session.ts";
import { hostTexts as says } from "../../texts/host.ts";
import type { ViewProps } from "../../view-props.ts";

/** For who may: root with the primary token. */
export function Reboot({ api, node }: Pick<ViewProps, "api" | "node">) {
  const isAsked = useSignal(false);
  const said = useSignal("");
  const { caller, hostname = "" } = node.status.value ?? {};
  const { value } = session;
  if (caller?.root !== true) return null;
  // A session may not, whoever it is of.
  if (value.kind === "in" && value.isOwn) {
    return (
      <p class="quiet">
        {says.rebootElsewhere} <code>{says.rebootCommand}</code>
      </p>
    );
  }
  return (
    <div class="row">
      <button type="button" class="danger" onClick={() => (isAsked.value = true)}>
        {says.reboot}
      </button>
      <span role="status">{said.value}</span>
      {isAsked.value && (
        <Confirm
          title={says.rebootTitle(plainText(hostname))}
          action={says.reboot}
          typed={plainText(hostname) || says.reboot}
          onClose={() => (isAsked.value = false)}
          onConfirm={async () => {
            const { delaySecs } = await api.client(SystemService).rebootSystem({});
            said.value = says.rebootBegins(delaySecs);
          }}
        >
          <p>{says.rebootLoses}</p>
        </Confirm>
      )}
    </div>
  );
}
