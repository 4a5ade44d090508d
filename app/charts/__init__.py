"""Record → figure. No Streamlit, no torch: numpy, pandas, plotly, altair and `engine.records`."""
