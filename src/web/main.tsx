/** The page's root component. */
import { render, type ComponentChildren } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { Failure } from "./parts/failure.tsx";
import { route, startRouting } from "./route.ts";
import { session, startSession } from "./session.ts";
import { texts } from "./texts.ts";
import { views } from "./views.tsx";
import { Frame } from "./views/frame.tsx";
import { SignInView } from "./views/sign-in.tsx";
import { SwitchUserView } from "./views/switch-user.tsx";

function Page() {
  const { value } = session;
  if (value.kind === "working") return <p class="alone">{texts.signIn.working}</p>;
  if (value.kind === "asking") return <SwitchUserView {...value} />;
  if (value.kind === "out") return <SignInView message={value.message} />;
  const { api, node } = value;
  const { view, args } = route.value;
  const View = views[view];
  return (
    <Frame node={node}>
      <ErrorBoundary of={route.value}>
        <View key={view} api={api} node={node} args={args} />
      </ErrorBoundary>
    </Frame>
  );
}

/**
 * Contains rendering errors, so that the rest of the page stays usable.
 * @param of the content's key: after an error, a new key renders again
 */
function ErrorBoundary({ of, children }: { of: unknown; children: ComponentChildren }) {
  const [error, reset] = useErrorBoundary((thrown) => reportError(thrown)) as [unknown, () => void];
  useEffect(() => reset(), [of]);
  if (error === undefined) return <>{children}</>;
  const message = error instanceof Error ? error.message : "";
  return (
    <>
      <Failure message={`${texts.unexpected} (${message})`} />
      <button type="button" onClick={reset}>
        {texts.readAgain}
      </button>
    </>
  );
}

const signingIn = startSession();
// A new fragment, such as one with the next code, does not reload the page.
addEventListener("hashchange", () => void startSession());
startRouting();
document.body.replaceChildren();
render(<Page />, document.body);
await signingIn;
