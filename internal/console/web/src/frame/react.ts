// React for views that import it. React is CommonJS, so its names are listed.
import React from "react";
import * as jsxRuntime from "react/jsx-runtime";
import ReactDOM from "react-dom";
import { createRoot, hydrateRoot } from "react-dom/client";

export default React;
export const {
  Children, Component, Fragment, Profiler, PureComponent, StrictMode, Suspense, cache, cloneElement, createContext, createElement, createRef,
  forwardRef, isValidElement, lazy, memo, startTransition, use, useActionState, useCallback, useContext, useDebugValue, useDeferredValue,
  useEffect, useId, useImperativeHandle, useInsertionEffect, useLayoutEffect, useMemo, useOptimistic, useReducer, useRef, useState,
  useSyncExternalStore, useTransition, version,
} = React as any;
export const { jsx, jsxs } = jsxRuntime as any;
export const { createPortal, flushSync } = ReactDOM as any;
export { createRoot, hydrateRoot };
