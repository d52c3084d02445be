/** Swagger UI, configured to show one operation, opened, with its example filled in. */

const BUNDLE = "docs/assets/swagger-ui-bundle.js";
const STYLE = "docs/assets/swagger-ui.css";

/** Fetch what the first chosen operation needs. It is large, and takes half a second to run. */
export function prefetchSwaggerUi() {
  for (const href of [BUNDLE, STYLE]) {
    document.head.append(Object.assign(document.createElement("link"), { rel: "prefetch", href }));
  }
}

/** @returns {Promise<Function>} SwaggerUIBundle, which is no module */
export function loadSwaggerUi() {
  const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: STYLE });
  // Before ours, which adapts it.
  document.head.prepend(style);
  return new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: BUNDLE });
    script.addEventListener("load", () => resolve(window.SwaggerUIBundle));
    script.addEventListener("error", reject);
    document.head.append(script);
  });
}

/**
 * @param {Function} SwaggerUIBundle
 * @param {HTMLElement} element - where operations are shown
 * @param {object} first - a document of one operation
 * @returns {(next: object) => void} shows another one
 */
export function showOperations(SwaggerUIBundle, element, first) {
  const ui = SwaggerUIBundle({
    domNode: element,
    spec: first,
    layout: "OperationLayout",
    plugins: [operationLayout, exampleFiles, accessible],
    docExpansion: "full",
    tryItOutEnabled: true,
    displayRequestDuration: true,
    defaultModelExpandDepth: 3,
    // No badge of an online validator.
    validatorUrl: null,
  });
  return (next) => ui.specActions.updateJsonSpec(next);
}

/** Show operations and the button for a token, and nothing else. A field without a value is not sent. */
function operationLayout({ React, getComponent }) {
  return {
    components: {
      OperationLayout: () =>
        React.createElement(
          "div",
          { className: "swagger-ui" },
          React.createElement(getComponent("AuthorizeBtnContainer", true)),
          React.createElement(getComponent("operations", true)),
        ),
      ParameterIncludeEmpty: () => null,
    },
  };
}

/** Label the inputs for files, and choose those of the example. */
function exampleFiles({ React, specSelectors }) {
  return {
    wrapComponents: {
      RequestBody: (Original) => (props) => {
        const around = React.useRef(null);
        const [, path, method] = props.specPath.toJS();
        const files = specSelectors.specJson().getIn(["paths", path, method, "x-example-files"]);
        React.useEffect(() => {
          if (props.isExecute) void chooseFiles(around.current, files.toJS());
        }, [props.isExecute, files]);
        return React.createElement("div", { ref: around }, React.createElement(Original, props));
      },
    },
  };
}

/** Label fields for screen readers, and let the keyboard scroll long texts. */
function accessible({ React }) {
  const adapted = (adapt) => (Original) => (props) => {
    const around = React.useRef(null);
    React.useEffect(() => adapt(around.current, props));
    return React.createElement("div", { ref: around }, React.createElement(Original, props));
  };
  const label = (element, text) => {
    for (const field of element.querySelectorAll("input, select")) field.ariaLabel = text;
  };
  return {
    wrapComponents: {
      JsonSchemaForm: adapted((element, { description }) => label(element, description)),
      ExamplesSelect: adapted((element) => label(element, "Example")),
      HighlightCode: adapted((element) => {
        for (const text of element.querySelectorAll("pre")) text.tabIndex = 0;
      }),
    },
  };
}

/**
 * @param {HTMLElement} body - the part of the page with the request's body
 * @param {Record<string, string>} files - addresses by field name; a body that is a file has the name x
 */
async function chooseFiles(body, files) {
  // At once: the examples may take a while to arrive.
  for (const name of Object.keys(files)) fileInput(body, name).ariaLabel = name;
  const contents = await Promise.all(
    Object.entries(files).map(async ([name, address]) => [name, await (await fetch(address)).blob()]),
  );
  for (const [name, content] of contents) {
    const input = fileInput(body, name);
    const chosen = new DataTransfer();
    chosen.items.add(new File([content], `${name}.npy`, { type: "application/octet-stream" }));
    input.files = chosen.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  }
}

/** The input of a field, or the only one where the body is a file. */
function fileInput(body, name) {
  const row = body.querySelector(`[data-property-name="${name}"]`) ?? body;
  return row.querySelector("input[type=file]");
}
