import type { App } from "../../../gen/svc/v1/app_pb.ts";
import type { Api } from "../api.ts";
import { plainText } from "../plain-text.ts";
import { texts } from "../texts.ts";
import { ConfirmButton } from "../parts/confirm.tsx";

/** Cancels the current operation of an app, whoever started it. */
export function CancelOperation({ api, app: { id, name, operation } }: { api: Api; app: App }) {
  return (
    <ConfirmButton
      title={texts.app.cancelTitle(operation?.kind ?? "", plainText(name))}
      action={texts.app.cancel}
      isDanger={false}
      onConfirm={() => api.apps.cancelAppOperation({ id })}
    >
      <p>{texts.app.cancelLoses}</p>
    </ConfirmButton>
  );
}
