import { useSignal } from "@preact/signals";
import { SystemService } from "../../../../gen/svc/v1/system_pb.ts";
import { ConfirmButton } from "../../parts/confirm.tsx";
import { plainText } from "../../plain-text.ts";
import { session } from "../../session.ts";
import { hostTexts as says } from "../../texts/host.ts";
import type { ViewProps } from "../../view-props.ts";

/** For who may: root with the primary token. */
export function Reboot({ api, node }: Pick<ViewProps, "api" | "node">) {
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
      <ConfirmButton
        title={says.rebootTitle(plainText(hostname))}
        action={says.reboot}
        typed={plainText(hostname) || says.reboot}
        onConfirm={async () => {
          const { delaySecs } = await api.client(SystemService).rebootSystem({});
          said.value = says.rebootBegins(delaySecs);
        }}
      >
        <p>{says.rebootLoses}</p>
      </ConfirmButton>
      <span role="status">{said.value}</span>
    </div>
  );
}
