import { useSignal } from "@preact/signals";
import { SystemService } from "../../../../gen/svc/v1/system_pb.ts";
import { ConfirmButton } from "../../parts/confirm.tsx";
import { plainText } from "../../plain-text.ts";
import { session } from "../../session.ts";
import { hostTexts as labels } from "../../texts/host.ts";
import type { ViewProps } from "../../view-props.ts";

/** Only for root with the primary token. */
export function Reboot({ api, node }: Pick<ViewProps, "api" | "node">) {
  const notice = useSignal("");
  const { caller, hostname = "" } = node.status.value ?? {};
  const { value } = session;
  if (caller?.root !== true) return null;
  // Sessions may not reboot, not even root's.
  if (value.kind === "in" && value.isOwn) {
    return (
      <p class="quiet">
        {labels.rebootElsewhere} <code>{labels.rebootCommand}</code>
      </p>
    );
  }
  return (
    <div class="row">
      <ConfirmButton
        title={labels.rebootTitle(plainText(hostname))}
        action={labels.reboot}
        typed={plainText(hostname) || labels.reboot}
        onConfirm={async () => {
          const { delaySecs } = await api.client(SystemService).rebootSystem({});
          notice.value = labels.rebootBegins(delaySecs);
        }}
      >
        <p>{labels.rebootLoses}</p>
      </ConfirmButton>
      <span role="status">{notice.value}</span>
    </div>
  );
}
