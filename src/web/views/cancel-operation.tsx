import { useSignal } from "@preact/signals";
import type { App } from "../../../gen/svc/v1/app_pb.ts";
import type { Api } from "../api.ts";
import { plainText } from "../plain-text.ts";
import { texts } from "../texts.ts";
import { Confirm } from "../parts/confirm.tsx";

/** Ends what is under way with an app, whoever began it. */
export function CancelOperation({ api, app: { id, name, operation } }: { api: Api; app: App }) {
  const isAsked = useSignal(false);
  return (
    <>
      <button type="button" onClick={() => (isAsked.value = true)}>
        {texts.app.cancel}
      </button>
      {isAsked.value && (
        <Confirm
          title={texts.app.cancelTitle(operation?.kind ?? "", plainText(name))}
          action={texts.app.cancel}
          onClose={() => (isAsked.value = false)}
          onConfirm={() => api.apps.cancelAppOperation({ id })}
        >
          <p>{texts.app.cancelLoses}</p>
        </Confirm>
      )}
    </>
  );
}
